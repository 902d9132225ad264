"""Objects of S3: where they are (`places`), and how they are read and written; nothing else knows obstore."""

from scalable_kpca.objects.buckets import MissingObjectError, ReplacedObjectError
from scalable_kpca.objects.places import SourceFile, StoredObject, is_object
from scalable_kpca.objects.reading import (
    READ_BYTES,
    ObjectFile,
    check_bucket,
    has_object,
    list_objects,
    object_sizes,
    object_state,
    open_object,
    read_beginning,
    read_object,
)
from scalable_kpca.objects.writing import (
    UPLOAD_BYTES,
    put_object,
    remove_objects,
    replace_object,
    upload_file,
    writing_object,
)

__all__ = [
    "READ_BYTES",
    "UPLOAD_BYTES",
    "MissingObjectError",
    "ObjectFile",
    "ReplacedObjectError",
    "SourceFile",
    "StoredObject",
    "check_bucket",
    "has_object",
    "is_object",
    "list_objects",
    "object_sizes",
    "object_state",
    "open_object",
    "put_object",
    "read_beginning",
    "read_object",
    "remove_objects",
    "replace_object",
    "upload_file",
    "writing_object",
]
