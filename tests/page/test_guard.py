"""Who may see the page: the right name, the token where one is set, and never another site."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from dpp2 import BadInput
from dpp2.page.address import Address
from dpp2.page.guard import COOKIE, Door, Guard
from tests.page.asked import ask

TOKEN = "a token that nobody guesses"


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def guarded(token: str = "") -> Guard:
    return Guard(Starlette(routes=[Route("/", hello)]), Door.of(("127.0.0.1", "localhost", "::1"), token))


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:1", "LOCALHOST", "[::1]:8000", "127.0.0.1"])
async def test_this_machine_is_known_by_its_own_names(host: str) -> None:
    answer = await ask(guarded(), headers={"host": host})
    assert (answer.status, answer.text) == (200, "hello")


@pytest.mark.parametrize("host", ["evil.example:8000", "127.0.0.1.evil.example", "", "[::2]:8000", "127.0.0.1:8000x"])
async def test_a_name_that_only_leads_here_is_refused(host: str) -> None:
    answer = await ask(guarded(), headers={"host": host})
    assert answer.status == 421
    assert "hello" not in answer.text


async def test_a_page_of_another_site_gets_nothing() -> None:
    elsewhere = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    assert (await ask(guarded(), headers=elsewhere)).status == 403
    assert (await ask(guarded(), headers={"sec-fetch-site": "same-origin"})).status == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await ask(guarded(), headers=link)).status == 200  # a link may lead here


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_but_reading(method: str) -> None:
    assert (await ask(guarded(), method=method)).status == 405


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example"])
async def test_every_answer_has_a_strict_policy(host: str) -> None:
    headers = (await ask(guarded(), headers={"host": host})).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control")]


async def test_with_a_token_nobody_gets_in_without_it() -> None:
    app = guarded(TOKEN)
    assert (await ask(app)).status == 401
    assert (await ask(app, query="token=wrong")).status == 401
    assert (await ask(app, headers={"cookie": f"{COOKIE}-8000=wrong"})).status == 401


async def test_the_token_comes_once_and_is_then_a_cookie() -> None:
    app = guarded(TOKEN)
    first = await ask(app, headers={"host": "10.0.0.7:8321"}, query=f"token={TOKEN.replace(' ', '%20')}")
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    answer = await ask(app, headers={"host": "10.0.0.7:8321", "cookie": cookie.split(";")[0]})
    assert answer.text == "hello"
    other = await ask(
        guarded(TOKEN[::-1]), headers={"host": "10.0.0.7:8322"}, query=f"token={TOKEN[::-1].replace(' ', '%20')}"
    )
    both = "; ".join(one.split(";")[0] for one in (cookie, other.headers["set-cookie"]))
    for port, token in ((8321, TOKEN), (8322, TOKEN[::-1])):  # a browser sends the cookies of all ports
        assert (await ask(guarded(token), headers={"host": f"10.0.0.7:{port}", "cookie": both})).text == "hello"
    for host in ("10.0.0.7:x", "10.0.0.7:99999999", "[", ":", "²"):
        assert (await ask(app, headers={"host": host})).status == 401


def test_a_port_that_is_taken_is_named_in_one_sentence() -> None:
    with Address().bound() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput) as refused:
            Address(port=port).bound()
    assert str(refused.value) == f"--port = {port}: expected a port of 127.0.0.1 that is free (Address already in use)"


@pytest.mark.parametrize(
    "token", ["0123456789abcdef&x=1#y", "a+b c%41;d,e/f=ghijkl", "quote\"d\\ and 'more'", "ünïcödé 日本語 and more"]
)
async def test_whatever_the_token_the_address_that_is_printed_leads_in(token: str) -> None:
    app, url = guarded(token), urlsplit(Address("0.0.0.0", 8000, token).url(8000))
    first = await ask(app, query=url.query)
    assert first.status == 303
    kept = first.headers["set-cookie"].split("; HttpOnly")[0]
    assert (await ask(app, headers={"cookie": kept})).text == "hello"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"host": "0.0.0.0"}, "--host = '0.0.0.0': expected --token beside it"),
        ({"host": "0.0.0.0", "token": "short"}, "--token = '…': expected at least 16 characters"),
        ({"port": 70000}, "--port = 70000"),
        ({"host": "256.1.1.1", "token": TOKEN}, "--host = '256.1.1.1': expected an address of this machine"),
        ({"host": "a b", "token": TOKEN}, "--host = 'a b': expected an address of this machine"),
    ],
)
def test_what_may_not_listen_says_so(given: dict[str, str | int], sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        Address(**given).bound().close()  # type: ignore[arg-type]
    assert sentence in str(refused.value)
    assert TOKEN not in str(refused.value)
    assert "short" not in str(refused.value)
