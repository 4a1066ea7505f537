"""First import of the fork server: it leaves with its parent.

Importing a module is the only way to run code in that server.
"""

from stemrepro.common.stopping import leave_with_parent

leave_with_parent()
