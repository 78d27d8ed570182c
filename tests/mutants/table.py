"""The mutants: which clause, what is wrong in them, and who must notice.

Rule 1: a mutant is the smallest change that makes the defect real: where a second guard stands behind the
first one, both are taken away.
Rule 2: a patch names the exact text that it replaces, once in the file; a text that is no longer there is
an error of this table, never a mutant that survived or died.
Rule 3: every witness must convict; one that only fails to start has seen nothing.

Source: reference/reliability.md 2.5.
"""

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant", "Patch"]

SIM = "tests/sim/test_seeds.py::test_fixed_seed_breaks_no_promise"
UNIT = "tests/unit/"
INCOMING = UNIT + "engine/messaging/test_incoming.py::test_"
JOURNAL = UNIT + "store/journal/test_journal.py::test_"
HERE = "tests/mutants/test_table.py::test_"
SCRIPTS = "tests/scripts/test_"
LADDER = (
    "tests/property/test_ladder.py::test_ladder_shows_a_message_again_only_without_evidence_and_loses_none"
)
PLACE = "tests/sim/test_brokers.py::test_histories_of_a_place_break_no_promise[0]"


class Patch(NamedTuple):
    """One replacement in one file below src/tieline."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One defect, and the tests of which each must fail for it; `shows` is a word that one must print."""

    clause: str
    name: str
    patches: tuple[Patch, ...]
    witnesses: tuple[str, ...]
    shows: str = ""


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "mutant-1",
        "reply before commit",
        (
            Patch(
                "shell/driver.py",
                "        else:\n            self._waiting.append(turn)\n",
                "        else:\n            self._carry(turn)\n            self._waiting.append(turn)\n",
            ),
        ),
        (SIM, UNIT + "shell/test_driver.py::test_plan_with_rows_is_carried_out_after_its_commit_only"),
        "I2",
    ),
    Mutant(
        "mutant-2",
        "synchronous NORMAL",
        (
            Patch("store/journal/database.py", 'SYNCHRONOUS = "FULL"', 'SYNCHRONOUS = "NORMAL"'),
            Patch("store/journal/database.py", "SYNCHRONOUS_LEVEL_MIN = 2", "SYNCHRONOUS_LEVEL_MIN = 1"),
        ),
        (JOURNAL + "commit_returns_only_after_its_sync",),
    ),
    Mutant(
        "mutant-3",
        "no directory fsync",
        (
            Patch(
                "store/files/directory.py",
                "            if sync:\n                os.fsync(self.fd)\n",
                "            if sync:\n",
            ),
        ),
        (UNIT + "store/files/test_directory.py::test_write_with_sync_syncs_file_then_directory",),
    ),
    Mutant(
        "mutant-4",
        "retry after fsync EIO",
        (
            Patch(
                "store/journal/journal.py",
                "                self._store(rows, lines, content_bytes)\n",
                "                try:\n"
                "                    self._store(rows, lines, content_bytes)\n"
                "                except apsw.IOError:\n"
                "                    self._store(rows, lines, content_bytes)\n",
            ),
        ),
        (JOURNAL + "commit_with_any_operation_failing_is_in_doubt_and_poisons",),
    ),
    Mutant(
        "mutant-5",
        "counter-only reservation",
        (
            Patch(
                "store/journal/headroom.py",
                '        pages = self._connection.pragma("page_count")\n'
                "        assert isinstance(pages, int)\n        self._extend",
                "        self.filler_count += 1\n        self.is_grown = True\n        return\n"
                "        self._extend",
            ),
            Patch(
                "store/journal/headroom.py",
                '        self.filler_count = self._connection.execute("SELECT count(*) FROM headroom").get\n',
                "",
            ),
        ),
        (JOURNAL + "transitions_of_all_accepted_mail_succeed_on_a_full_disk",),
    ),
    Mutant(
        "mutant-6",
        "dedupe in memory",
        (
            Patch(
                "engine/messaging/restore.py",
                "    _resume(custody, told, unsent, now)\n    custody.arrival_generation",
                "    custody.received_keys.clear()\n"
                "    _resume(custody, told, unsent, now)\n    custody.arrival_generation",
            ),
        ),
        (HERE + "message_repeated_after_a_restore_is_one_record",),
    ),
    Mutant(
        "mutant-7",
        "dedupe without digest",
        (
            Patch(
                "engine/messaging/incoming.py",
                "    return record.digest == digest(envelope)\n",
                "    return True\n",
            ),
        ),
        (INCOMING + "offer_of_another_message_under_a_known_id_is_a_conflict",),
    ),
    Mutant(
        "mutant-8",
        "dedupe on claimed sender",
        (
            Patch(
                "engine/messaging/incoming.py",
                "    if envelope.sender.instance != command.sender_instance:\n",
                "    if not envelope.sender.instance:\n",
            ),
        ),
        (INCOMING + "offer_from_another_instance_than_is_connected_is_refused",),
    ),
    Mutant(
        "mutant-9",
        "receipt regress allowed",
        (
            Patch("machine/outbox.py", "    | {(_C, _R)}\n", "    | {(_C, _R), (_C, _A)}\n"),
            Patch("machine/outbox.py", "(_C, _U), (_C, _A), (_C, _C)", "(_C, _U), (_C, _C)"),
            Patch(
                "machine/outbox.py",
                "    if known.recipient_cursor is not None and receipt.cursor < known.recipient_cursor:\n"
                "        return None\n",
                "",
            ),
        ),
        (
            UNIT + "machine/test_outbox.py",
            HERE + "late_receipt_takes_nothing_back",
        ),
    ),
    Mutant(
        "mutant-10",
        "receipt accepted from any peer",
        (
            Patch(
                "engine/messaging/incoming.py",
                "        or record.envelope.recipient.instance != command.from_instance\n",
                "",
            ),
        ),
        (
            INCOMING + "receipt_of_anybody_else_is_refused",
            HERE + "receipt_of_a_stranger_advances_nothing",
        ),
    ),
    Mutant(
        "mutant-11",
        "role missing from transcript",
        (
            Patch(
                "wire/native/handshake.py",
                "        str(PROTOCOL),\n        role,\n",
                "        str(PROTOCOL),\n",
            ),
        ),
        (
            UNIT
            + "wire/native/test_handshake.py::test_transcript_of_published_vector_is_the_published_bytes",
            HERE + "proof_of_one_role_does_not_verify_for_the_other",
        ),
    ),
    Mutant(
        "mutant-12",
        "small-order keys accepted",
        (
            Patch(
                "keys.py",
                "    return y < FIELD_PRIME and y not in SMALL_ORDER_Y\n",
                "    return y < FIELD_PRIME\n",
            ),
            Patch(
                "keys.py",
                "    if not _sodium().crypto_core_ed25519_is_valid_point(point):\n"
                '        raise ValueError("not a point of the prime-order group")\n',
                "",
            ),
        ),
        (UNIT + "test_keys.py::test_public_key_of_small_order_is_refused",),
    ),
    Mutant(
        "mutant-13",
        "second unlink of socket without lock",
        (
            Patch(
                "shell/endpoint/owners.py",
                "locked(runtime_directory, create=False, seam=seam) as runtime:\n            for instance",
                "open_directory(runtime_directory, create=False) as runtime:\n            for instance",
            ),
        ),
        (UNIT + "shell/endpoint/test_owners.py::test_sweep_waits_for_the_lock",),
    ),
    Mutant(
        "mutant-14",
        "EAGAIN treated as stale",
        (
            Patch(
                "shell/endpoint/address.py",
                "        except ConnectionRefusedError:\n            return True\n",
                "        except (ConnectionRefusedError, BlockingIOError):\n            return True\n",
            ),
        ),
        (UNIT + "shell/endpoint/test_owners.py::test_sweep_leaves_a_listener_with_a_full_backlog",),
    ),
    Mutant(
        "mutant-20",
        "sequence from row count",
        (
            Patch(
                "engine/messaging/turn.py",
                "        return self.custody.latest_cursor + 1\n",
                "        return len(self.custody.records) + 1\n",
            ),
        ),
        (
            SIM,
            INCOMING + "offers_get_rising_sequences_that_are_never_used_again",
        ),
        "I11",
    ),
    Mutant(
        "mutant-21",
        "cursor >= instead of >",
        (
            Patch(
                "engine/messaging/history.py",
                "bisect.bisect_right(events, after",
                "bisect.bisect_left(events, after",
            ),
        ),
        (UNIT + "engine/messaging/test_history.py::test_page_after_a_cursor_holds_exactly_what_is_greater",),
    ),
    Mutant(
        "mutant-22",
        "prefix match for targets",
        (
            Patch(
                "engine/directory.py",
                "target in (root.alias, peer_id(root.instance, None))\n",
                "(root.alias.startswith(target) or peer_id(root.instance, None).startswith(target))\n",
            ),
        ),
        (UNIT + "engine/test_directory.py::test_resolve_takes_exact_ids_and_unique_aliases_only",),
    ),
    Mutant(
        "mutant-22",
        "prefix match for targets, at the broker",
        (
            Patch(
                "engine/brokering/targets.py",
                "    if not found and sender.features.matches_prefixes:\n",
                "    if not found:\n",
            ),
        ),
        (
            SCRIPTS + "intercom_direct.py::test_target_is_resolved_by_exact_id_then_by_name",
            UNIT + "engine/brokering/test_targets.py::test_exact_id_then_name_then_for_some_a_prefix",
        ),
    ),
    Mutant(
        "mutant-23",
        "mark consumed at fetch",
        (
            Patch(
                "engine/messaging/exposure.py",
                "        turn.move_received(record, Step.PREPARE, token=command.token)\n",
                "        turn.move_received(record, Step.PREPARE, token=command.token)\n"
                "        turn.move_received(record, Step.CONSUME)\n",
            ),
        ),
        (
            SIM,
            UNIT + "engine/messaging/test_exposure.py::test_expose_prepares_the_oldest_and_consumes_nothing",
        ),
        "I16",
    ),
    Mutant(
        "mutant-24",
        "UTF-8 errors=replace in stored content",
        (
            Patch(
                "wire/jsonrpc.py",
                "        document = _parse(line)\n",
                '        document = _parse(line.decode("utf-8", "replace"))\n',
            ),
        ),
        (UNIT + "wire/test_jsonrpc.py::test_bytes_with_two_readings_are_refused",),
    ),
    Mutant(
        "mutant-25",
        "splitlines() framing",
        (
            Patch(
                "wire/buffer.py",
                "        pieces = data.split(_LINE_END)\n",
                '        text = data.decode("utf-8", "surrogateescape")\n'
                '        pieces = [one.encode("utf-8", "surrogateescape") for one in text.splitlines()]\n'
                '        pieces += [b""] if not data or data.endswith(b"\\n") else []\n',
            ),
        ),
        (UNIT + "wire/test_buffer.py::test_line_ends_of_unicode_end_no_line",),
    ),
    Mutant(
        "mutant-26",
        "CSI-only sanitiser",
        (
            Patch(
                "text/terminal.py",
                "    if columns_max is None:\n        return _escaped(text, multiline=multiline)\n",
                "    if columns_max is None:\n"
                '        return re.sub("\\x1b\\\\[[0-9;?]*[ -/]*[@-~]", "", text)\n',
            ),
        ),
        (UNIT + "text/test_terminal.py::test_terminal_control_is_shown_as_an_escape",),
    ),
    Mutant(
        "mutant-27",
        "shared wrapper nonce",
        (
            Patch(
                "text/context.py",
                "    boundaries = [boundary_of(message) for message in messages[:count_max]]\n"
                "    _check_boundaries(boundaries)\n",
                "    shown = messages[:count_max]\n"
                "    boundaries = [boundary_of(shown[0])] * len(shown) if shown else []\n",
            ),
        ),
        (UNIT + "text/test_context.py::test_boundaries_are_one_for_each_message",),
    ),
    Mutant(
        "mutant-28",
        "hidden-id error differs",
        (
            Patch(
                "engine/messaging/incoming.py",
                "    if record is None or record.envelope.sender.run != command.sender_run:\n"
                "        turn.tell_peer(command.asked, _NOT_YOURS)\n",
                "    if record is None or record.envelope.sender.run != command.sender_run:\n"
                "        known = turn.custody.received_keys\n"
                "        others = any(key.message_id == command.message_id for key in known)\n"
                '        hidden = Refusal("UNKNOWN_TARGET", "no such message")\n'
                "        turn.tell_peer(command.asked, _NOT_YOURS if others else hidden)\n",
            ),
        ),
        (INCOMING + "status_of_anothers_message_is_told_like_one_that_does_not_exist",),
    ),
    Mutant(
        "mutant-28",
        "hidden-id error differs, at the broker",
        (
            Patch(
                "engine/brokering/targets.py",
                "    if exact is not None and is_visible(sender, exact):\n        return exact\n",
                "    if exact is not None and is_visible(sender, exact):\n        return exact\n"
                "    if exact is not None:\n"
                '        return Failed(asked.message_id, "Session is hidden", "E_TARGET_NOT_FOUND")\n',
            ),
        ),
        (
            SCRIPTS + "intercom_groups.py::test_session_lists_and_reaches_its_group_and_mains_reach_mains",
            UNIT + "engine/brokering/test_targets.py::test_hidden_id_is_refused_in_the_words_for_nobodys_id",
        ),
    ),
    Mutant(
        "I41",
        "a broker heeds no revision of a guard",
        (
            Patch(
                "engine/brokering/guards.py",
                "    if guard.application_guard != target.application_guard:\n",
                "    if guard.application_guard == target.id:\n",
            ),
        ),
        (PLACE,),
        "I41",
    ),
    Mutant(
        "I41",
        "a recipient believes its broker in what a guard says",
        (
            Patch(
                "runtime/intercom/postal.py",
                '            and guard.get("applicationGuard") == context.guard\n',
                "",
            ),
        ),
        (PLACE,),
        "I41",
    ),
    Mutant(
        "I42",
        "groups see each other",
        (
            Patch(
                "engine/brokering/topology.py",
                "    if not is_child(one) and not is_child(other):\n",
                "    if one.scope == other.scope:\n",
            ),
        ),
        (PLACE,),
        "I42",
    ),
    Mutant(
        "I44",
        "an id that mail waits for goes to who asks first",
        (
            Patch(
                "engine/brokering/arrival.py",
                " and absent.is_parked and is_foreign else wanted\n",
                " and not wanted else wanted\n",
            ),
        ),
        (PLACE,),
        "I44",
    ),
    Mutant(
        "intercom-131",
        "held mail is not kept",
        (
            Patch(
                "engine/brokering/mailbox.py", '        turn.rows.append(Put("mail", _key(held), body))\n', ""
            ),
        ),
        (PLACE,),
        "mail",
    ),
    Mutant(
        "I30",
        "of questions that cross both are taken",
        (
            Patch(
                "engine/messaging/custody.py",
                "            return min((self.records[cursor] for cursor in waiting)",
                "            return max((self.records[cursor] for cursor in waiting)",
            ),
        ),
        (INCOMING + "question_that_crosses_several_of_ours_is_judged_by_the_least_id",),
    ),
    Mutant(
        "I16",
        "a push is pushed again while it may still show itself",
        (
            Patch(
                "runtime/ladder/ladder.py",
                "            and item.cursor not in self._pushed\n",
                "",
            ),
        ),
        (LADDER,),
        "pushed twice",
    ),
    Mutant(
        "I9",
        "a push that is in flight is given to the next rung",
        (
            Patch(
                "runtime/ladder/ladder.py",
                "            if now() - since >= evidence_s or",
                "            if now() - since >= LOOK_S or",
            ),
        ),
        (LADDER,),
        "in flight by push",
    ),
    Mutant(
        "I16",
        "evidence that comes late is forgotten",
        (
            Patch(
                "engine/messaging/exposure.py",
                "    late = custody.lapsed.pop(token, ())\n",
                "    late: tuple[int, ...] = ()\n",
            ),
        ),
        (LADDER,),
        "there was evidence",
    ),
    Mutant(
        "I16",
        "an answer that the harness's pipe lost counts as read",
        (
            Patch(
                "adapters/mcp/hooks.py",
                "        return await self._operations.unflushed(token)\n",
                "        return await self._operations.flushed(token)\n",
            ),
        ),
        (LADDER,),
        "was not shown",
    ),
    Mutant(
        "I16",
        "what a push shows late is a person's prompt",
        (
            Patch(
                "runtime/ladder/ladder.py",
                "        return bool(tokens), consumed\n",
                "        return out is not None and out.token in tokens, consumed\n",
            ),
        ),
        (LADDER,),
        "person's",
    ),
)
"""Those of the reference's list that concern messages and the native wire, in its order;
then what the histories of a place and the schedules of the ladder must convict, by the invariant that is
broken."""
