"""From the name of a feed-forward network to its class."""

import importlib
import importlib.util
import sys
from functools import cache

from stemrepro.common.errors import UserError
from stemrepro.model.ffn.base import FFN
from stemrepro.model.ffn.naming import module_of


@cache
def ffn_class(name: str) -> type[FFN]:
    """Return the class of a network: the one that its module defines, or the named one of a file outside the package.

    Raises:
        UserError: the file can't be imported or has no such class.
    """
    place = module_of(name)
    if isinstance(place, str):
        module = importlib.import_module(place)
        classes = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == place]
        [network] = [value for value in classes if issubclass(value, FFN)]  # a file has one network
        return network
    loading = importlib.util.spec_from_file_location(f"own_ffn_{'_'.join(place.with_suffix('').parts)}", place)
    assert loading is not None, f"{place} is no .py file"
    assert loading.loader is not None, f"{place} is no .py file"
    module = importlib.util.module_from_spec(loading)
    sys.modules[module.__name__] = module  # torch.compile looks up the globals of a method there
    try:
        loading.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module.__name__]
        raise UserError(f"{place} can't be imported: {type(error).__name__}: {error}") from error
    wanted = name.partition(":")[2]
    value = getattr(module, wanted, None)
    if not (isinstance(value, type) and issubclass(value, FFN)):
        raise UserError(f"{place} has no class '{wanted}' that is an FFN (stemrepro.model.ffn.base)")
    return value
