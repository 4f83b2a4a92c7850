"""Pydantic models and validated functions of a script, which travel by value.

A model builds a validator and a serializer from its fields, in Rust. Both refer to the model's class, and
can't be built while that class is unfinished. So they are not sent, but built again where the model arrives.
The validator of a `validate_call` function is built at the first call.
"""

from __future__ import annotations

from typing import Any

_BUILT = ("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__")
_VALIDATED_CALL = "pydantic._internal._validate_call", "ValidateCallWrapper"


def leave_built(attributes: dict[str, Any]) -> None:
    """Remove the validator, serializer and schema from the attributes of a class, if it is a model."""
    for name in _BUILT:
        attributes.pop(name, None)


def build(kind: type) -> None:
    """Build the validator and the serializer of a finished class, if it is a model."""
    if "__pydantic_fields__" not in vars(kind):
        return
    model: Any = kind
    # If the model refers to another class that is unfinished, pydantic tries again when the model is used.
    if hasattr(kind, "model_rebuild"):
        model.model_rebuild(force=True, raise_errors=False)
    else:
        from pydantic.dataclasses import rebuild_dataclass

        rebuild_dataclass(model, force=True, raise_errors=False)


def reduced(obj: Any) -> Any:
    """Reduce a function wrapped by `validate_call`, for pickle; return NotImplemented for anything else."""
    kind = type(obj)
    if (kind.__module__, kind.__name__) != _VALIDATED_CALL:
        return NotImplemented
    state = obj.function, obj.config_wrapper.config_dict, obj.validate_return
    return object.__new__, (kind,), state, None, None, fill_validated_call


def fill_validated_call(wrapper: Any, state: tuple[Any, dict[str, Any], bool]) -> None:
    """Initialize the wrapper as `validate_call` does."""
    function, config, validates_result = state
    wrapper.__init__(function, {**config, "defer_build": True}, validates_result, None)
