"""The base of all components: token, the facts shown in previews, child options, outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi


class Component(pulumi.ComponentResource):
    """A component resource. `facts` are what an operator decides on: `pulumi preview --diff` shows them above the children's diffs.

    `after` has to be given to the children: depends_on on a component does not reach them.
    """

    def __init__(
        self,
        token: str,
        name: str,
        facts: Mapping[str, Any],
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(token, name, dict(facts), opts)
        self._after = tuple(after)

    def child(self, *, after: Sequence[pulumi.Resource] = (), **options: Any) -> pulumi.ResourceOptions:
        """Options of a child: its parent, what it comes after, and nothing of the component's own options.

        ResourceOptions.merge would hand aliases, retain_on_delete and depends_on of the component down to every child.
        """
        return pulumi.ResourceOptions(parent=self, depends_on=[*self._after, *after], **options)
