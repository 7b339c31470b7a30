"""The table of requests, compared with real requests and answers, and each field missing, wrong and huge."""

import json

import pytest
from support.native import ROOT

from rocketc.errors import BadRequestError
from rocketc.remoting.requests import BOOL, INT, LONG, REQUESTS, TEXT

RECORDED = [json.loads(line) for line in (ROOT / "tests/golden/admin-5.3.3.jsonl").read_text().splitlines()]
COMMON = {"ns", "nsd", "bname", "oway", "lo", "ReqT"}  # fields that any request of 5.x may have
VALUES = {TEXT: "text", INT: "-7", LONG: "1700000000000", BOOL: "true"}
FIELDS = [(request, field) for request in REQUESTS.values() for field in request.fields]


def name_of(request, field):
    return field.short if request.short else field.name


def complete(request):
    return {name_of(request, field): VALUES[field.kind] for field in request.fields}


@pytest.mark.parametrize("one", [r for r in RECORDED if r["code"] in REQUESTS], ids=lambda r: str(r["code"]))
def test_recorded_requests_and_answers(one):
    """Each field that RocketMQ's own tools and broker use is in the table, with this type."""
    request = REQUESTS[one["code"]]
    sent = {k: v for k, v in (one["request"] or {}).items() if k not in COMMON}
    values = request.decode(sent)
    known = {name_of(request, field) for field in request.fields}
    assert sent.keys() - known <= {"_UNIQUE_KEY_QUERY"}
    assert request.encode(values).keys() == sent.keys() & known
    assert request.encode(values) == {k: v for k, v in sent.items() if k in known}
    answer = one.get("answer") or {}  # 40 is oneway
    if answer and one["answerCode"] == 0:
        assert request.encode_answer(request.decode_answer(answer)).items() <= answer.items()
        assert answer.keys() - {field.name for field in request.answer} <= {"MSG_REGION", "TRACE_ON"}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=lambda r: r.name)
def test_encoding_and_decoding(request_):
    fields = complete(request_)
    assert request_.encode(request_.decode(fields)) == fields
    assert request_.decode({**fields, "unknown": "x"}) == request_.decode(fields)
    answer = {field.name: VALUES[field.kind] for field in request_.answer}
    assert request_.encode_answer(request_.decode_answer(answer)) == answer


@pytest.mark.parametrize("request_, field", FIELDS, ids=lambda x: getattr(x, "name", None))
def test_each_field_missing_empty_wrong_and_huge(request_, field):
    name = name_of(request_, field)
    fields = complete(request_)
    del fields[name]
    if field.required:
        with pytest.raises(BadRequestError, match=f"{request_.name} lacks the field {name}"):
            request_.decode(fields)
    else:
        assert field.name not in request_.decode(fields)
    for wrong in ("", "x", "1.5", " 1", "0x1", "1_0", "٣", "9" * 30, "-9223372036854775809"):
        fields[name] = wrong
        if field.kind in (INT, LONG):
            with pytest.raises(BadRequestError, match=f"{request_.name}: the field {name}"):
                request_.decode(fields)
        else:
            assert request_.decode(fields)[field.name] == (wrong if field.kind is TEXT else False)


def test_an_error_is_short():
    with pytest.raises(BadRequestError) as caught:
        REQUESTS[30].decode({"topic": "t", "queueId": "9" * 1_000_000})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("kind, texts", [(INT, ["2147483648", "-2147483649"]), (LONG, ["9223372036854775808"])])
def test_the_bounds_of_numbers(kind, texts):
    assert kind.parse(str(kind.most)) == kind.most and kind.parse(str(kind.least)) == kind.least
    assert kind.parse("+7") == 7
    for text in texts:
        with pytest.raises(ValueError):
            kind.parse(text)


def test_names_and_codes_are_unique():
    names = [request.name for request in REQUESTS.values()]
    assert len(set(names)) == len(names)
    for request in REQUESTS.values():
        assert len({name_of(request, field) for field in request.fields}) == len(request.fields)
        assert not request.short or all(field.short for field in request.fields)


def test_the_names_of_a_send():
    """SEND_MESSAGE and SEND_MESSAGE_V2 have the same fields, with long and with short names."""
    assert REQUESTS[10].fields == REQUESTS[310].fields
    assert [field.short for field in REQUESTS[310].fields] == list("abcdefghijklmn")
