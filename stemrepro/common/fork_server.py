"""Imported by the fork server before anything else, as there is no other way to have it do something: it leaves with its parent."""

from stemrepro.common.stopping import leave_with_parent

leave_with_parent()
