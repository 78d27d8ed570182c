"""The table of hooks: what they send is what the door takes."""

from tieline.adapters.harness import facts
from tieline.adapters.mcp.constants import TOOL_FIELDS


def test_tool_input_has_the_fields_of_the_host_tool() -> None:
    """No hook sends what the tool refuses."""
    for hook in (*facts.CLAUDE_HOOKS, *facts.CODEX_HOOKS):
        sent = facts.tool_input(hook)
        assert set(sent) | {"run"} == TOOL_FIELDS[facts.HOST_TOOL]
        assert sent["event"] == hook.event
        assert all(value.startswith("${") for value in sent["payload"].values())


def test_hook_of_codex_names_only_what_the_event_has() -> None:
    """Codex fails a hook without a word when one of its placeholders stands for nothing."""
    naming = {hook.event for hook in facts.CODEX_HOOKS if "run" in facts.tool_input(hook)}
    assert naming == {"SubagentStart", "SubagentStop"}


def test_shims_and_extras_are_named_once() -> None:
    """A shim says where it is, an extra what it asks."""
    assert facts.SHIMS["pi"] == facts.SHIMS["omp"]
    assert all(text.islower() or text[0].islower() for text in facts.EXTRAS.values())
    assert "_" not in facts.SERVER
