"""A JSON file as a service: its arrays are collections, its objects singletons."""

from restkeeper.features.files.serve import Description as Description
from restkeeper.features.files.serve import FileOptions as FileOptions
from restkeeper.features.files.serve import application_of as application_of
from restkeeper.features.files.serve import served_file as served_file
