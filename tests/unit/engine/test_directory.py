"""Who is there: scopes, aliases, pages, and what a name means."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.config import Scope
from tieline.engine.directory import (
    Listing,
    Place,
    Root,
    Run,
    is_in_scope,
    listing,
    opaque,
    others_count,
    relation,
    resolve,
)
from tieline.errors import Refusal
from tieline.model.identity import Availability, Descriptor, Peer

HERE = Place("/w/proj", "/w/proj/.git", Scope.MACHINE)


def root(instance: str, *, alias: str = "", place: Place = HERE, **more: object) -> Root:
    """Return a root of the test's place."""
    facts: dict[str, object] = {
        "session": "s", "project": "proj", "activity": "idle", "availability": Availability.AVAILABLE,
        "capabilities": ("message.receive",), **more,
    }  # fmt: skip
    return Root(instance=instance, alias=alias or instance, place=place, **facts)  # type: ignore[arg-type]


@pytest.mark.clause("native-31", "O54")
@pytest.mark.parametrize(("other", "expected"), [
    (Place("/w/proj", "", Scope.MACHINE), Scope.WORKSPACE),
    (Place("/w/proj-evil", "", Scope.MACHINE), Scope.MACHINE),
    (Place("/w/proj/x", "", Scope.MACHINE), Scope.MACHINE),
    (Place("/w/linked", "/w/proj/.git", Scope.MACHINE), Scope.REPOSITORY),
    (Place("/w/clone", "/w/clone/.git", Scope.MACHINE), Scope.MACHINE),
    (Place("", "", Scope.MACHINE), Scope.MACHINE),
])  # fmt: skip
def test_relation_compares_whole_paths(other: Place, expected: Scope) -> None:
    """Equal workspaces, then equal git directories; a sibling with the same prefix is neither."""
    assert relation(HERE, other) is expected


@pytest.mark.clause("native-31", "native-146")
@pytest.mark.parametrize("own", list(Scope))
@pytest.mark.parametrize("other", list(Scope))
def test_scope_holds_only_when_both_policies_reach(own: Scope, other: Scope) -> None:
    """Two roots of one repository need `repository` or more on both sides."""
    one, two = Place("/a", "/g", own), Place("/b", "/g", other)
    assert is_in_scope(one, two) is (own is not Scope.WORKSPACE and other is not Scope.WORKSPACE)
    assert not is_in_scope(one, two, Scope.WORKSPACE)


@pytest.mark.clause("native-132", "I48", "native-166")
@given(count=st.integers(0, 130), size=st.integers(1, 60))
def test_pages_show_everybody_once_in_order(count: int, size: int) -> None:
    """Pages are bounded; nobody is skipped or repeated while nothing changes."""
    kids = (Run("r", "kid", "idle", ()),)
    roots = [root(f"i-{number}", runs=kids if number % 3 == 0 else ()) for number in range(count)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = listing(HERE, roots, scope=Scope.MACHINE, query="", cursor=cursor, page_size=size)
        assert isinstance(page, Listing)
        assert len(page.peers) <= size
        seen += [item.peer.id for item in page.peers]
        cursor = page.cursor
        if cursor is None:
            break
    expected = [Peer(item.instance).id for item in roots] + [
        Peer(item.instance, "r").id for item in roots if item.runs
    ]
    assert seen == sorted(expected)


@pytest.mark.clause("native-132")
def test_cursor_of_another_listing_is_refused() -> None:
    """A cursor is bound to its scope and query; a forged one is refused."""
    roots = [root(f"i{number}") for number in range(5)]
    page = listing(HERE, roots, scope=Scope.MACHINE, query="", cursor=None, page_size=2)
    assert isinstance(page, Listing)
    assert page.cursor is not None
    for scope, query, cursor in [
        (Scope.MACHINE, "i", page.cursor), (Scope.WORKSPACE, "", page.cursor), (Scope.MACHINE, "", "x"),
        (Scope.MACHINE, "", ""), (Scope.MACHINE, "", "A" * 3_000), (Scope.MACHINE, "", "W1tbW1tb"),
        (Scope.MACHINE, "", "\u00e9"),
    ]:  # fmt: skip
        refused = listing(HERE, roots, scope=scope, query=query, cursor=cursor, page_size=2)
        assert isinstance(refused, Refusal)
        assert refused.code == "INVALID_PARAMS"


def test_listing_wider_than_the_policy_is_denied() -> None:
    """Asking for more than the own policy gives is SCOPE_DENIED."""
    own = Place("/a", "", Scope.WORKSPACE)
    refused = listing(own, [], scope=Scope.MACHINE, query="", cursor=None, page_size=5)
    assert isinstance(refused, Refusal)
    assert refused.code == "SCOPE_DENIED"


@pytest.mark.clause("O56", "S19")
def test_query_is_plain_text_and_bounded() -> None:
    """Wildcards mean nothing; a query over 256 characters is refused."""
    roots = [root("i1", alias="build-agent"), root("i2", alias="other")]
    found = listing(HERE, roots, scope=Scope.MACHINE, query="BUILD", cursor=None, page_size=9)
    assert isinstance(found, Listing)
    assert [item.alias for item in found.peers] == ["build-agent"]
    for query in ("*", "(a+)+$", "b?ild"):
        page = listing(HERE, roots, scope=Scope.MACHINE, query=query, cursor=None, page_size=9)
        assert isinstance(page, Listing)
        assert page.peers == ()
    refused = listing(HERE, roots, scope=Scope.MACHINE, query="*?" * 4_000, cursor=None, page_size=9)
    assert isinstance(refused, Refusal)


@pytest.mark.clause("S19", "O56")
@pytest.mark.parametrize("piece", ["*?", "(a+)+$", "a", "[[", "\\", "\u0130", "x" * 64 + " "])
def test_names_made_to_be_expensive_cost_no_more_than_plain_ones(piece: str) -> None:
    """Among a thousand peers a hostile query or target costs about what a plain one does.

    A matcher that backtracks takes seconds; the bound leaves room for a machine that is busy.
    """
    roots = [root(f"i{number}", alias="a" * 64, project="a" * 255 + "b") for number in range(1_000)]

    def spent(query: str, target: str) -> float:
        costs = []
        for _ in range(7):
            begun = time.process_time()
            listing(HERE, roots, scope=Scope.MACHINE, query=query, cursor=None, page_size=50)
            resolve(HERE, roots, target)
            costs.append(time.process_time() - begun)
        return min(costs)

    plain = spent("nobody", "nobody")
    assert spent((piece * 256)[:256], (piece * 8_192)[:8_192]) <= 2 * plain + 0.02
    assert spent(piece * 8_192, piece) <= 2 * plain + 0.02


@pytest.mark.clause("native-30", "I43", "O03", "mutant-22")
def test_resolve_takes_exact_ids_and_unique_aliases_only() -> None:
    """A prefix, a number, a path, a star, a trailing space or an empty text never resolves."""
    roots = [root("i1", alias="reviewer"), root("i2", alias="builder")]
    found = resolve(HERE, roots, "reviewer")
    assert isinstance(found, Descriptor)
    assert found.peer == Peer("i1")
    assert resolve(HERE, roots, ":reviewer") == found
    exact = resolve(HERE, roots, Peer("i2").id)
    assert isinstance(exact, Descriptor)
    assert exact.peer == Peer("i2")
    for text in (
        "rev",
        "reviewer ",
        "::reviewer",
        "reviewer:",
        ":",
        "Reviewer",
        "",
        "4711",
        "/w/proj",
        "*",
        Peer("i1").id[:20],
        Peer("i3").id,
        "x" * 300,
    ):
        refused = resolve(HERE, roots, text)
        assert isinstance(refused, Refusal), text
        assert refused.code == "UNKNOWN_TARGET"
    nobody = resolve(HERE, roots, "rev\x1b[31m")
    assert isinstance(nobody, Refusal)
    assert nobody.text == r"no peer 'rev\x1b[31m' is known here"


@pytest.mark.clause("native-30", "native-211", "I43")
def test_resolve_of_a_shared_alias_is_ambiguous_and_exact_id_wins() -> None:
    """Two bearers of a name: never a pick; an offline one gives way to the one that can be reached."""
    roots = [root("i1", alias="twin"), root("i2", alias="twin")]
    refused = resolve(HERE, roots, "twin")
    assert isinstance(refused, Refusal)
    assert refused.code == "AMBIGUOUS_TARGET"
    assert refused.candidates == tuple(sorted((Peer("i1").id, Peer("i2").id)))
    many = resolve(HERE, [root(f"i{number}", alias="twin") for number in range(20)], "twin")
    assert isinstance(many, Refusal)
    assert len(many.candidates) == 8
    assert isinstance(resolve(HERE, roots, Peer("i1").id), Descriptor)
    roots[1] = root("i2", alias="twin", availability=Availability.PRESENCE_ONLY)
    found = resolve(HERE, roots, "twin")
    assert isinstance(found, Descriptor)
    assert found.peer == Peer("i1")


@pytest.mark.clause("native-209", "O04", "native-31")
def test_resolve_outside_of_scope_is_denied() -> None:
    """A unique name in another project is not reached from workspace scope."""
    own = Place("/w/a", "", Scope.WORKSPACE)
    roots = [root("i1", alias="far", place=Place("/w/b", "", Scope.MACHINE))]
    for target in ("far", Peer("i1").id):
        refused = resolve(own, roots, target)
        assert isinstance(refused, Refusal)
        assert refused.code == "SCOPE_DENIED"
    refused = resolve(own, roots, "far", Scope.MACHINE)
    assert isinstance(refused, Refusal)
    assert refused.code == "SCOPE_DENIED"


@pytest.mark.clause("native-36", "native-37", "native-38")
def test_descriptor_shows_no_path_and_no_endpoint() -> None:
    """A listing shows opaque ids in place of paths; a run shows what its root told."""
    roots = [root("i1", runs=(Run("r1", "kid", "editing", ("message.send",)),))]
    page = listing(HERE, roots, scope=Scope.MACHINE, query="", cursor=None, page_size=9)
    assert isinstance(page, Listing)
    shown = repr(page.peers)
    assert "/w/proj" not in shown
    kinds = {item.kind: item for item in page.peers}
    assert kinds["run"].alias == "kid"
    assert kinds["root"].workspace == kinds["run"].workspace == opaque("/w/proj")
    assert opaque("") == ""


def window(name: str, ref: str, *, former: tuple[str, ...] = (), is_other: bool = False) -> Root:
    """Return an end of a wire with refs and addresses, in our project or in another."""
    place = Place("/elsewhere", "", Scope.MACHINE)
    return root(
        f"pi-peers:{ref * 5}00", alias=name, place=place, wire="pi-peers", ref=ref, address=f"/s/{ref}.sock",
        former_names=former, is_other_project=is_other,
    )  # fmt: skip


def named(found: Descriptor | Refusal) -> str:
    """Return the ref of what was found, or the code of why nothing was."""
    return found.code if isinstance(found, Refusal) else found.ref


@pytest.mark.clause("pi-peers-48", "pi-peers-U8", "pi-peers-U23")
@pytest.mark.parametrize(("target", "expected"), [
    ("api", "AMBIGUOUS_TARGET"),
    ("api [aaaaaa]", "aaaaaa"),
    ("api [BBBBBB]", "bbbbbb"),
    (":[cccccc]", "cccccc"),
    ("web [aaaaaa]", "UNKNOWN_TARGET"),
    ("[dddddd]", "UNKNOWN_TARGET"),
    ("api[aaaaaa]", "UNKNOWN_TARGET"),
    ("api [aaaaaa", "UNKNOWN_TARGET"),
    ("/s/cccccc.sock", "cccccc"),
    ("uds:/s/cccccc.sock", "cccccc"),
    ("pipe:/s/cccccc.sock", "cccccc"),
    ("/s/none.sock", "UNKNOWN_TARGET"),
    ("name with blanks", "eeeeee"),
    ("once", "cccccc"),
    ("web", "cccccc"),
    ("shared", "AMBIGUOUS_TARGET"),
    ("far", "SCOPE_DENIED"),
    ("[ffffff]", "SCOPE_DENIED"),
    ("was-far", "SCOPE_DENIED"),
    ("*", "UNKNOWN_TARGET"),
])  # fmt: skip
def test_window_is_named_by_name_ref_address_or_former_name(target: str, expected: str) -> None:
    """Exactly one bearer, never a guess; who bears a name now goes before who bore it."""
    known = [
        root("i-1", alias="native"),
        root("i-2", alias="*", availability=Availability.PRESENCE_ONLY),
        window("api", "aaaaaa", former=("web", "shared")),
        window("api", "bbbbbb", former=("shared",)),
        window("web", "cccccc", former=("once",)),
        window("name with blanks", "eeeeee"),
        window("far", "ffffff", former=("was-far",), is_other=True),
    ]
    narrow = Place(HERE.workspace, HERE.repository, Scope.WORKSPACE)
    assert named(resolve(narrow, known, target)) == expected


@pytest.mark.clause("pi-peers-47")
def test_window_of_another_project_is_counted_and_seen_by_who_crosses() -> None:
    """Its project bounds a window, the scope a native root; crossing widens the one and not the other."""
    narrow = Place(HERE.workspace, HERE.repository, Scope.WORKSPACE)
    known = [
        root("i-1", alias="native", place=Place("/other", "", Scope.MACHINE)),
        window("near", "aaaaaa"),
        window("far", "ffffff", is_other=True),
    ]
    assert others_count(known) == 1
    for is_crossing, expected in ((False, ["near"]), (True, ["far", "near"])):
        page = listing(
            narrow, known, scope=Scope.WORKSPACE, query="", cursor=None, page_size=9, is_crossing=is_crossing
        )
        assert isinstance(page, Listing)
        assert sorted(item.alias for item in page.peers) == expected
    assert named(resolve(narrow, known, "far", is_crossing=True)) == "ffffff"
    assert named(resolve(narrow, known, "native", is_crossing=True)) == "SCOPE_DENIED"


def test_query_finds_a_window_by_its_whole_ref() -> None:
    """A part of a ref finds nothing: it is a mark, no text."""
    known = [root("a", ref="zzzzzz"), root("b", ref="yyyyyy")]
    for query, count in (("zzzzzz", 1), ("zzzzz", 0), ("yyyyyy", 1)):
        page = listing(HERE, known, scope=Scope.MACHINE, query=query, cursor=None, page_size=9)
        assert isinstance(page, Listing)
        assert len(page.peers) == count
