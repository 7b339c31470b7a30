"""The requests of administrators about accounts, at a broker on virtual time."""

import json
import stat

import pytest
import yaml
from unit.acl.requests_of import send, signed
from unit.acl.test_validator import ADMIN, EXCEPTION, OTHER, VECTORS, play

from rocketc.acl.editing import with_account, write_data
from rocketc.acl.rule_files import read_file
from rocketc.errors import StoreIOError
from rocketc.remoting.command import Command

NEW = {
    "accessKey": "newaccount", "secretKey": "s3cret-value", "admin": "false", "topicPerms": "topicA=PUB, topicB=SUB",
    "defaultGroupPerm": "SUB",
}  # fmt: skip


@pytest.fixture
def home(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(VECTORS["sample_acl"])
    return tmp_path


def test_an_account_is_added_changed_and_deleted(tmp_path, home):
    path = home / "conf/plain_acl.yml"
    path.chmod(0o640)

    async def main(stage, peer, vip):
        mine = {"account": "newaccount", "secret": "s3cret-value"}
        answers = await peer.ask(signed(310, send("topicA"), b"x", **mine), signed(50, NEW, **OTHER))
        assert [answer.code for answer in answers] == [1, 0] and answers[1].remark is None
        assert (await peer.ask(signed(310, send("topicA"), b"x", **mine)))[0].code == 0
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        kept = yaml.safe_load(path.read_text())["accounts"]
        assert [one["accessKey"] for one in kept] == ["RocketMQ", "rocketmq2", "adminWithPerms", "newaccount"]
        assert kept[-1] == {
            "accessKey": "newaccount", "secretKey": "s3cret-value", "defaultGroupPerm": "SUB", "admin": False,
            "topicPerms": ["topicA=PUB", "topicB=SUB"],
        }  # fmt: skip

        # A field that is missing keeps its value; `admin` becomes false.
        change = {"accessKey": "newaccount", "secretKey": "s3cret-value", "topicPerms": "topicA=SUB"}
        assert (await peer.ask(signed(50, change, **OTHER)))[0].code == 0
        refused = (await peer.ask(signed(310, send("topicA"), b"x", **mine)))[0]
        assert refused.remark == EXCEPTION + "No default permission for topic:topicA"
        assert stage.broker.access.version_of(str(path))[0] == 2

        assert (await peer.ask(signed(51, {"accessKey": "newaccount"}, **OTHER)))[0].code == 0
        refused = (await peer.ask(signed(310, send("topicA"), b"x", **mine)))[0]
        assert refused.remark == EXCEPTION + "No acl config for newaccount"
        assert list(home.glob("conf/*")) == [path]

    play(tmp_path, home, main)


@pytest.mark.parametrize(
    ("code", "fields", "expected", "says"),
    [
        (50, {**NEW, "topicPerms": "t1=ANY"}, 209, "'ANY' is not a permission; allowed are DENY, PUB, SUB"),
        (50, {**NEW, "defaultTopicPerm": "pub"}, 209, "'pub' is not a permission"),
        (50, {**NEW, "topicPerms": "t1"}, 209, "not like name=PUB"),
        (50, {**NEW, "accessKey": "abc"}, 209, "7 characters or more"),
        (50, {**NEW, "secretKey": "s3cret"}, 209, "7 characters or more"),
        (50, {"accessKey": "newaccount"}, 209, "7 characters or more"),
        (50, {**NEW, "whiteRemoteAddress": "localhost"}, 209, "the address pattern 'localhost' is wrong"),
        (50, {}, 1, "lacks the field accessKey"),
        (51, {"accessKey": "nobody11"}, 210, "the account 'nobody11' does not exist"),
        (53, {"globalWhiteAddrs": "10.0.0.1,x"}, 211, "the address pattern 'x' is wrong"),
        (53, {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/etc/passwd"}, 211, "not a file of accounts"),
        (53, {}, 1, "lacks the field globalWhiteAddrs"),
    ],
)
def test_wrong_changes_are_refused_and_change_nothing(tmp_path, home, code, fields, expected, says):
    async def main(stage, peer, vip):
        before = stage.broker.access.rules
        answer = (await peer.ask(signed(code, fields, **OTHER)))[0]
        assert answer.code == expected and says in answer.remark and "s3cret" not in answer.remark
        assert stage.broker.access.rules.accounts == before.accounts
        assert (home / "conf/plain_acl.yml").read_text() == VECTORS["sample_acl"]

    play(tmp_path, home, main)


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path, home, monkeypatch):
    def fail(path, data):
        raise StoreIOError(28, "No space left on device", path)

    monkeypatch.setattr("rocketc.acl.access.write_data", fail)

    async def main(stage, peer, vip):
        answer = (await peer.ask(signed(50, NEW, **OTHER)))[0]
        assert answer.code == 209 and "No space left" in answer.remark
        assert "newaccount" not in stage.broker.access.rules.accounts

    play(tmp_path, home, main)


def test_the_global_white_list_is_changed(tmp_path, home):
    async def main(stage, peer, vip):
        change = {"globalWhiteAddrs": "10.0.0.1, 10.0.1.*", "aclFileFullPath": ""}
        assert (await peer.ask(signed(53, change, **OTHER)))[0].code == 0
        rules = stage.broker.access.rules
        assert [rules.white.matches(one) for one in ("10.0.1.9", "10.10.103.1")] == [True, False]

    play(tmp_path, home, main)


def test_accounts_of_the_folder_are_changed_there(tmp_path, home):
    (home / "conf/acl").mkdir()
    other = home / "conf/acl/a.yml"
    other.write_text("accounts: [{accessKey: another, secretKey: '12345678'}]")

    async def main(stage, peer, vip):
        change = {"accessKey": "another", "secretKey": "12345678", "defaultTopicPerm": "PUB"}
        assert (await peer.ask(signed(50, change, **OTHER)))[0].code == 0
        assert read_file(str(other)).accounts[0].default_topic == 4
        assert (home / "conf/plain_acl.yml").read_text() == VECTORS["sample_acl"]
        change = {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": str(other)}
        assert (await peer.ask(signed(53, change, **OTHER)))[0].code == 0
        assert read_file(str(other)).white[0].matches("10.0.0.1")

    play(tmp_path, home, main)


TWICE = "accounts: [{accessKey: another, secretKey: 'secret-1', admin: true}]"


@pytest.fixture
def files(home):
    """Three files that have the same account; the first one counts."""
    (home / "conf/acl").mkdir()
    found = [home / "conf/acl/a.yml", home / "conf/acl/b.yml", home / "conf/plain_acl.yml"]
    for path in found[:2]:
        path.write_text(TWICE.replace("secret-1", f"secret-{path.stem}"))
    found[2].write_text(VECTORS["sample_acl"] + "\n  - {accessKey: another, secretKey: secret-3}\n")
    return found


def test_an_account_is_deleted_from_all_files(tmp_path, home, files):
    """Otherwise the entry of the next file would count, perhaps with more permissions."""

    async def main(stage, peer, vip):
        mine = {"account": "another", "secret": "secret-a"}
        assert (await peer.ask(signed(54, **mine)))[0].code == 0
        assert (await peer.ask(signed(51, {"accessKey": "another"}, **OTHER)))[0].code == 0
        assert "another" not in stage.broker.access.rules.accounts
        assert ["another" in path.read_text() for path in files] == [False, False, False]
        assert len(read_file(str(files[2])).accounts) == 3

    play(tmp_path, home, main)


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_an_account_that_is_not_deleted_from_all_files_is_valid_as_before(tmp_path, home, files, fails, monkeypatch):
    def write(path, data):
        if path == str(files[fails]):
            raise StoreIOError(28, "No space left on device", path)
        write_data(path, data)

    monkeypatch.setattr("rocketc.acl.access.write_data", write)

    async def main(stage, peer, vip):
        answer = (await peer.ask(signed(51, {"accessKey": "another"}, **OTHER)))[0]
        assert answer.code == 210 and str(files[fails]) in answer.remark
        assert stage.broker.access.rules.accounts["another"].secret_key == "secret-a"
        assert read_file(str(files[0])).accounts[0].secret_key == "secret-a"  # also after the files are read again

    play(tmp_path, home, main)


def test_a_change_looks_at_the_files_as_they_are_now(tmp_path, home):
    path = home / "conf/plain_acl.yml"

    async def main(stage, peer, vip):
        path.write_text(VECTORS["sample_acl"] + "\n  - {accessKey: another, secretKey: secret-3}\n")  # not noticed yet
        assert (await peer.ask(signed(51, {"accessKey": "another"}, **OTHER)))[0].code == 0
        assert "another" not in path.read_text()

    play(tmp_path, home, main)


def test_versions_and_accounts_are_answered(tmp_path, home):
    async def main(stage, peer, vip):
        version, accounts = await peer.ask(signed(52, **OTHER), signed(54, **ADMIN))
        path = str(home / "conf/plain_acl.yml")
        data = json.loads(version.fields["version"])
        assert version.fields.keys() == {"version", "allAclFileVersion", "brokerName", "brokerAddr", "clusterName"}
        assert data["counter"] == 0 and json.loads(version.fields["allAclFileVersion"]) == {path: data}
        body = json.loads(accounts.body)
        assert body["globalWhiteAddrs"] == ["10.10.103.*"]
        assert body["plainAccessConfigs"][0] == {
            "accessKey": "RocketMQ", "secretKey": "12345678", "admin": False, "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "SUB", "topicPerms": ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"],
            "groupPerms": ["groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"],
        }  # fmt: skip
        assert [one["accessKey"] for one in body["plainAccessConfigs"]] == ["RocketMQ", "rocketmq2", "adminWithPerms"]

    play(tmp_path, home, main)


def test_without_access_control_they_are_not_supported(tmp_path, home):
    async def main(stage, peer, vip):
        codes = [50, 51, 52, 53, 54, 3001, 3005, 3010]
        fields = {"accessKey": "newaccount", "globalWhiteAddrs": ""}
        for code, answer in zip(codes, await peer.ask(*[Command(code, fields) for code in codes]), strict=True):
            assert answer.code == 3 and answer.remark.startswith(f" request type {code} not supported: ")
            assert "aclEnable=true" in answer.remark

    play(tmp_path, home, main, acl_enable=False)


def test_requests_of_acl_2_are_not_supported(tmp_path, home):
    async def main(stage, peer, vip):
        answers = await peer.ask(Command(3001), signed(3001, {"username": "bob"}))
        assert [answer.code for answer in answers] == [1, 3]
        assert "this broker has ACL 1.0" in answers[1].remark

    play(tmp_path, home, main)


# ------------------------------------------------------------------------------------------ files


def test_a_new_file_is_only_for_its_owner(tmp_path):
    path = tmp_path / "plain_acl.yml"
    write_data(str(path), with_account({}, {"accessKey": "account", "secretKey": "密钥密钥密钥密"}, 7))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_file(str(path)).accounts[0].secret_key == "密钥密钥密钥密" and read_file(str(path)).version == (1, 7)


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "plain_acl.yml.tmp").symlink_to(tmp_path / "victim")
    write_data(str(tmp_path / "plain_acl.yml"), {"accounts": []})
    assert (tmp_path / "victim").read_text() == "kept"


def test_digits_stay_texts(tmp_path):
    path = tmp_path / "plain_acl.yml"
    write_data(str(path), with_account({}, {"accessKey": "01234567", "secretKey": "0x1234567"}, 7))
    account = read_file(str(path)).accounts[0]
    assert (account.access_key, account.secret_key) == ("01234567", "0x1234567")
