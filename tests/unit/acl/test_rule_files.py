"""The files of accounts: what is read, what is refused, and how they are read again."""

import json
import logging
import os

import pytest
from support.native import ROOT

from rocketc.acl.accounts import Account, Permission, read_account
from rocketc.acl.rule_files import RuleFiles, read_file

VECTORS = json.loads((ROOT / "tests/golden/acl-vectors.json").read_text(encoding="utf-8"))["acl_files"]
ONE = "accounts: [{accessKey: account, secretKey: '12345678'}]\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "conf").mkdir()
    return tmp_path


@pytest.mark.parametrize("one", VECTORS, ids=lambda one: one["name"])
def test_files_are_read_as_rocketmq_reads_them(home, one):
    write(home / "conf/plain_acl.yml", one["yaml"])
    if "load_error" in one:
        with pytest.raises(ValueError, match=r"plain_acl\.yml"):
            RuleFiles(str(home)).load()
        return
    found = [
        {
            "accessKey": account.access_key,
            "secretKey": account.secret_key,
            "admin": account.is_admin,
            "defaultTopicPerm": account.default_topic,
            "defaultGroupPerm": account.default_group,
            "perms": account.perms,
        }
        for account in RuleFiles(str(home)).load().accounts.values()
    ]
    assert found == one["accounts"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accounts: [{accessKey: account, secretKey: s3cret-value, oops\n", "line 2: this is not YAML"),
        ("accounts:\n- accessKey: account\n  secretKey: *s3cret-value\n", "line 3: this is not YAML"),
        ("accounts:\n- accessKey: account\n  secretKey: !s3cret-value x\n", "line 3: this is not YAML"),
        ("accounts:\n- accessKey: account\n  secretKey: '\ts3cret-value\n", "this is not YAML"),
        ("accounts:\n- {accessKey: account, secretKey: [s3cret-value]}\n", "secretKey is not a text"),
        ("accounts:\n- {accessKey: account, secretKey: 2020-01-01}\n", "secretKey is not a text"),
        ("accounts:\n- {accessKey: account, secretKey: yes}\n", "secretKey is not a text"),
        ("accounts:\n- {accessKey: account, secretKey: s3cret}\n", "7 characters or more"),
        ("accounts:\n- {accessKey: account, secretKey: s3cret-value, admin: maybe}\n", "neither true nor false"),
        ("accounts:\n- {accessKey: account, secretKey: s3cret-value, topicPerms: a=PUB}\n", "topicPerms is not a list"),
        ("accounts:\n- {accessKey: account, secretKey: s3cret-value, topicPerms: [{a: 1}]}\n", "not like name=PUB"),
        ("accounts:\n- {accessKey: account, secretKey: s3cret-value, whiteRemoteAddress: x}\n", "pattern 'x' is wrong"),
        ("accounts: {accessKey: account}\n", "accounts is not a list"),
        ("accounts: [s3cret-value]\n", "an account is not a mapping"),
        ("[s3cret-value]\n", "not a mapping with `accounts`"),
        ("globalWhiteRemoteAddresses: 10.0.0.1\n", "is not a list"),
        ("globalWhiteRemoteAddresses: [1]\n", "not a text"),
        ("accounts: 2020-99-99\n", "not possible in YAML"),
        ("accounts: !!bool x\n", "not possible in YAML"),
        ("accounts: !!int ''\n", "not possible in YAML"),
        ("[" * 1200, "not YAML|nested too deep"),
        ("!!python/object/apply:os.system ['s3cret-value']\n", "not YAML"),
    ],
)
def test_wrong_files_are_refused_and_no_message_has_a_secret(home, text, says):
    write(home / "conf/plain_acl.yml", text)
    with pytest.raises(ValueError, match=says) as error:
        RuleFiles(str(home)).load()
    assert "s3cret" not in str(error.value) and str(home) in str(error.value)
    assert error.value.__cause__ is None and error.value.__suppress_context__


def test_huge_files_are_refused(home):
    with open(home / "conf/plain_acl.yml", "wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(ValueError, match="more than 16777216 bytes"):
        RuleFiles(str(home)).load()


def test_secrets_are_in_no_text(home):
    write(home / "conf/plain_acl.yml", "accounts: [{accessKey: account, secretKey: s3cret-value}]")
    rules = RuleFiles(str(home)).load()
    assert rules.accounts["account"].secret_key == "s3cret-value"
    assert "s3cret" not in repr(rules) + str(rules) + repr(rules.accounts["account"]) + repr(rules.files)


def test_accounts_of_several_files(home, caplog):
    write(home / "conf/acl/a.yml", "globalWhiteRemoteAddresses: [10.0.0.1]\n" + ONE)
    write(home / "conf/acl/deep/b.yaml", "accounts: [{accessKey: account, secretKey: 'other-secret', admin: true}]")
    write(home / "conf/acl/tools.yml", "accessKey: x")
    write(home / "conf/acl/c.yml.bak", "no: [")
    write(home / "conf/plain_acl.yml", "globalWhiteRemoteAddresses: [10.0.0.2, '', ~]\naccounts: ~")
    rules = RuleFiles(str(home)).load()
    assert rules.accounts["account"].secret_key == "12345678" and not rules.accounts["account"].is_admin
    assert [rules.white.matches(f"10.0.0.{n}") for n in (1, 2, 3)] == [True, True, False]
    assert [record.getMessage() for record in caplog.records] == [
        f"{home}/conf/acl/deep/b.yaml: account account is defined twice; the first one counts"
    ]
    assert [os.path.relpath(path, home) for path in rules.files] == [
        "conf/acl/a.yml", "conf/acl/deep/b.yaml", "conf/plain_acl.yml"
    ]  # fmt: skip


def test_no_accounts_and_unknown_words_are_logged(home, caplog):
    RuleFiles(str(home)).load()
    write(home / "conf/plain_acl.yml", ONE.replace("}", ", defaultTopicPerm: pub, groupPerms: [g=ANY]}"))
    account = RuleFiles(str(home)).load().accounts["account"]
    assert account.default_topic == account.perms["%RETRY%g"] == Permission.DENY
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0].endswith("plain_acl.yml: there are no accounts, so all requests are refused")
    assert [text.partition(": ")[2] for text in texts[1:]] == [
        "account account: ANY is not a permission; it counts as DENY",
        "account account: pub is not a permission; it counts as DENY",
    ]


def test_another_default_file(home):
    write(home / "conf/mine.yml", ONE)
    assert list(RuleFiles(str(home), "/conf/mine.yml").load().accounts) == ["account"]


# ------------------------------------------------------------------------------------------ changes


@pytest.fixture
def files(home):
    write(home / "conf/plain_acl.yml", ONE)
    made = RuleFiles(str(home))
    made.load()
    return made


def polls(files, count=2):
    return [found for found in (files.poll() for _ in range(count)) if found is not None]


def test_a_changed_file_is_read_once(home, files):
    assert polls(files, 3) == []
    write(home / "conf/plain_acl.yml", ONE.replace("account,", "another,"))
    found = polls(files, 5)
    assert [list(rules.accounts) for rules in found] == [["another"]]


def test_a_file_that_still_changes_is_not_read(home, files):
    for n in range(5):
        write(home / "conf/plain_acl.yml", ONE + "#" * n + "\n")
        assert files.poll() is None
    assert len(polls(files, 3)) == 1


def test_new_and_removed_files_are_noticed(home, files):
    write(home / "conf/acl/a.yml", "accounts: [{accessKey: another, secretKey: '12345678'}]")
    assert set(polls(files)[0].accounts) == {"account", "another"}
    (home / "conf/plain_acl.yml").unlink()
    assert set(polls(files)[0].accounts) == {"another"}


@pytest.mark.parametrize("text", ["accounts: [", "", "# nothing\n", "accounts: [{accessKey: x}]", "[]"])
def test_an_error_keeps_the_old_rules_and_is_logged_once(home, files, caplog, text):
    write(home / "conf/acl/a.yml", "accounts: [{accessKey: another, secretKey: '12345678'}]")
    assert len(polls(files)) == 1
    write(home / "conf/plain_acl.yml", text)
    write(home / "conf/acl/a.yml", "accounts: [{accessKey: the-third, secretKey: '12345678'}]")  # not half of them
    assert polls(files, 6) == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.records[0].getMessage().startswith("the changed files of accounts are not used, the old ones stay: ")
    write(home / "conf/plain_acl.yml", ONE)
    assert set(polls(files)[0].accounts) == {"account", "the-third"}


def test_a_file_that_cannot_be_read_keeps_the_old_rules(home, files, caplog, monkeypatch):
    write(home / "conf/plain_acl.yml", ONE + "\n")

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("rocketc.acl.rule_files.read_file", refuse)
    assert polls(files, 4) == [] and "Permission denied" in caplog.text and len(caplog.records) == 1


def refusing(real, refused):
    """os.scandir or os.stat that may not look at a path; root may look at all, so permissions do not help."""

    def look(path, *args, **named):
        if os.fspath(path) == str(refused):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **named)

    return look


@pytest.mark.parametrize(
    ("call", "path"), [("scandir", "conf/acl"), ("scandir", "conf/acl/deep"), ("stat", "conf/acl/deep/a.yml")]
)
def test_a_folder_that_cannot_be_read_keeps_the_old_rules(home, files, caplog, monkeypatch, call, path):
    """Its accounts must not end, and those of later files must not count instead of them."""
    write(home / "conf/acl/deep/a.yml", "accounts: [{accessKey: account, secretKey: 'another-secret'}]")
    assert len(polls(files)) == 1
    monkeypatch.setattr(os, call, refusing(getattr(os, call), home / path))
    assert polls(files, 4) == []
    assert len(caplog.records) == 2 and caplog.records[0].getMessage().endswith("the first one counts")
    assert f"stay: [Errno 13] Permission denied: '{home / path}'" in caplog.text
    with pytest.raises(PermissionError, match=path):
        RuleFiles(str(home)).load()  # a broker does not start with half of its rules
    monkeypatch.undo()
    write(home / "conf/plain_acl.yml", "accounts: [{accessKey: another, secretKey: '12345678'}]")
    [rules] = polls(files, 4)
    assert rules.accounts.keys() == {"account", "another"} and len(caplog.records) == 2


def test_a_folder_that_is_a_file_is_an_error(home):
    write(home / "conf/acl", "")
    with pytest.raises(NotADirectoryError, match="conf/acl"):
        RuleFiles(str(home)).load()


def test_a_file_that_can_be_read_again_is_read(home, files, caplog, monkeypatch):
    """Its times and size are the same after the error is gone."""
    write(home / "conf/plain_acl.yml", ONE.replace("account,", "another,"))
    for _ in range(2):  # the same error is logged again after it was gone
        with monkeypatch.context() as patched:
            patched.setattr("builtins.open", refusing(open, home / "conf/plain_acl.yml"))
            assert polls(files, 4) == []
        assert [list(rules.accounts) for rules in polls(files, 2)] == [["another"]]
        write(home / "conf/plain_acl.yml", ONE.replace("account,", "another,") + "\n")
    assert len(caplog.records) == 2


def test_a_changed_owner_or_mode_is_noticed(home, files):
    (home / "conf/plain_acl.yml").chmod(0o600)
    assert len(polls(files)) == 1


def test_a_file_that_changes_while_it_is_read_is_read_later(home, files, monkeypatch):
    path = home / "conf/plain_acl.yml"
    write(path, ONE + "\n")

    def read(name):
        write(path, ONE + "\n\n\n")
        monkeypatch.undo()
        return read_file(name)

    monkeypatch.setattr("rocketc.acl.rule_files.read_file", read)
    assert polls(files, 2) == []
    assert len(polls(files, 3)) == 1


def test_pyyaml_is_imported_only_for_files_of_accounts():
    import subprocess
    import sys

    program = "import sys, rocketc, rocketc.broker.controller; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_without_pyyaml_the_message_says_what_to_install(home, monkeypatch):
    import sys

    from rocketc.acl.rule_files import yaml_module

    monkeypatch.setitem(sys.modules, "yaml", None)
    yaml_module.cache_clear()
    write(home / "conf/plain_acl.yml", ONE)
    with pytest.raises(ValueError, match=r"pip install 'rocketc\[acl\]'"):
        RuleFiles(str(home)).load()
    yaml_module.cache_clear()


# ------------------------------------------------------------------------------------------ permissions


@pytest.mark.parametrize(
    ("owned", "needed", "may"),
    [("DENY", "PUB", False), ("PUB", "PUB", True), ("SUB", "PUB", False), ("PUB|SUB", "PUB", True),
     ("SUB|PUB", "SUB", True), ("PUB | SUB", "SUB", False), ("ANY", "SUB", False), ("", "SUB", False)],
)  # fmt: skip
def test_permissions(owned, needed, may):
    account = read_account({"accessKey": "account", "secretKey": 12345678, "topicPerms": [f"t={owned}"]})
    assert account.may("t", Permission[needed]) is may


def test_deny_wins_and_defaults_apply():
    deny_and_pub = Permission.DENY | Permission.PUB
    account = Account("account", "12345678", default_group=Permission.SUB, perms={"t": deny_and_pub})
    assert not account.may("t", Permission.PUB)
    assert account.may("%RETRY%g", Permission.SUB) and not account.may("g", Permission.SUB)
