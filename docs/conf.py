"""Sphinx configuration: builds without a network, and nothing in the pages asks for one."""

import sys
from pathlib import Path

import scalable_kpca

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "scalable_kpca"
author = "The scalable_kpca developers"
copyright = "2026, " + author
release = version = scalable_kpca.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_click",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "formulas",
    "configuration",
]
exclude_patterns = ["_build", "gallery/*", "auto_gallery/*.ipynb", "auto_gallery/*.py", "sg_execution_times.rst"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
math_numfig = False
html_math_renderer = "drawn"

autodoc_typehints = "none"  # docstrings give shapes and units, which types do not
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "scalable_kpca"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"glossary": [], "changelog": [], "tutorial": []}
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "order.Taught",
    "reset_modules": ("order.our_look",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "capture_repr": (),
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "image_scrapers": ("matplotlib",),
    "thumbnail_size": (360, 252),
    "write_computation_times": False,
}
