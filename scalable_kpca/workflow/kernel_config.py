"""What every section of a configuration is, and the section of the kernel."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

__all__ = ["KernelConfig", "Section"]

SIGMA_KERNELS = ("rbf", "matern12", "matern32", "matern52")  # whose length scale it is


class Section(BaseModel):
    """Known keys only, finite numbers, and values that do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # YAML's yes, on and true would be read as 1
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise PydanticCustomError("boolean", "a truth value means nothing here")
        return value


class KernelConfig(Section):
    """The kernel function, in scikit-learn's names; matern12, matern32 and matern52 are Matérn of ν = 1/2, 3/2, 5/2."""

    name: Literal["linear", "poly", "rbf", "sigmoid", "laplacian", "cosine", "matern12", "matern32", "matern52"] = (
        Field(
            default="rbf", description="In scikit-learn's names; matern12, matern32, matern52 have ν = 1/2, 3/2, 5/2."
        )
    )
    gamma: Annotated[float, Field(ge=0)] | Literal["scale", "median"] | None = Field(
        default=None,
        description="null is 1/n_features, scale 1/(n_features · variance), median 1/(2 · median distance²); resolved "
        "on the rows of the fit.",
    )
    sigma: float | None = Field(
        default=None, gt=0, description="Of rbf and Matérn, in the place of gamma: gamma = 1/(2·sigma²)."
    )
    degree: float = Field(default=3, ge=0, description="Of poly.")
    coef0: float = Field(default=1, description="Constant term of poly and sigmoid.")

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if self.sigma is None:
            return self
        if self.gamma is not None:
            raise PydanticCustomError("width", "gamma and sigma are both given, and sigma stands for a gamma: keep one")
        if self.name not in SIGMA_KERNELS:
            message = f"kernel {self.name} has no sigma, only {', '.join(SIGMA_KERNELS)}: give gamma"
            raise PydanticCustomError("width", "{message}", {"message": message})
        if not (math.isfinite(self.gamma_of_sigma) and self.gamma_of_sigma > 0):
            raise PydanticCustomError("width", "1/(2·sigma²) is beyond float64: give another sigma")
        return self

    @property
    def gamma_of_sigma(self) -> float:
        """1/(2σ²). [seed 002]"""
        return math.inf if self.sigma is None else 0.5 / self.sigma / self.sigma

    @property
    def resolved_gamma(self) -> float | str | None:
        """Gamma, whether it was given as itself or as sigma."""
        return self.gamma if self.sigma is None else self.gamma_of_sigma

    @property
    def identity(self) -> dict[str, Any]:
        """What a run's results depend on: the same kernel by sigma and by gamma is the same kernel."""
        return self.model_dump(mode="json", exclude={"sigma"}) | {"gamma": self.resolved_gamma}
