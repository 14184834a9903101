"""The table that `Model.summary` prints."""

from mpcore.layers.layer import Layer

_HEADER = ("Layer", "Type", "Variables", "Parameters", "Policy")


def table(model: Layer, layers: list[Layer]) -> str:
    """Return one line per layer: variables with their shapes, parameters, policy."""
    rows = [_HEADER]
    for layer in layers:
        shapes = ", ".join(
            f"{variable.name} {'x'.join(map(str, variable.shape)) or 'scalar'}"
            for variable in layer.variables
        )
        if not layer.built and not shapes:
            shapes = "not built"
        rows.append(
            (
                layer.name,
                type(layer).__name__,
                shapes or "-",
                f"{layer.count_params():,}",
                layer.dtype_policy.name,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    trainable = sum(variable.size for variable in model.trainable_variables)
    total = model.count_params()
    return "\n".join(
        [
            f"{type(model).__name__} '{model.name}'",
            rule,
            lines[0].rstrip(),
            rule,
            *(line.rstrip() for line in lines[1:]),
            rule,
            f"Parameters: {total:,} ({trainable:,} trainable)",
        ]
    )
