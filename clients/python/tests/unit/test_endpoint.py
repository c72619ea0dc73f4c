"""Where an endpoint is: which URLs are one, and that all paths begin with that of the URL."""

import re
from pathlib import Path

import pytest
from scripted import Answer, Endpoint, Exchange, body_of, honest, refuse

import batchgate
from batchgate._endpoint import endpoint_of


@pytest.mark.parametrize(
    "url, read",
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("https://s3.example/", "https://s3.example"),
        ("HTTP://[::1]:9", "http://[::1]:9"),
        ("http://[::1]/s3/", "http://[::1]/s3"),
        ("http://[fe80::1%25eth0]:9", "http://[fe80::1%25eth0]:9"),
        ("http://a_b.c-d:9", "http://a_b.c-d:9"),
        ("https://host:9/data/v1.0//", "https://host:9/data/v1.0"),
        ("http://host/~a_b-c", "http://host/~a_b-c"),
    ],
)
def test_an_endpoint_is_a_scheme_a_host_and_perhaps_a_path(url: str, read: str) -> None:
    assert endpoint_of(url) == batchgate.Client(endpoint_url=url).endpoint_url == read


@pytest.mark.parametrize(
    "url, why",
    [
        ("", "http:// or https://"),
        ("127.0.0.1:9", "http:// or https://"),
        ("/s3", "http:// or https://"),
        ("ftp://host", "http:// or https://"),
        ("http://", "the host or the port"),
        ("http://:9", "the host or the port"),
        ("http://host:", "the host or the port"),
        ("http://host:0", "the host or the port"),
        ("http://a%20b", "the host or the port"),
        ('http://a"b', "the host or the port"),
        ("http://a<b>", "the host or the port"),
        ("http://a\\b", "the host or the port"),
        ("http://a|b", "the host or the port"),
        ("http://host:+1", "endpoint_url"),
        ("http://[::1]x:1", "endpoint_url"),
        ("http://ho st", "no URL"),
        (" http://host", "no URL"),
        ("http://h/s3\n/x", "no URL"),
        ("http://h\t", "no URL"),
        ("http://h\u00e9", "no URL"),
        ("http://host:99999", "no URL"),
        ("http://[::1", "no URL"),
        ("http://host?x", "without a query"),
        ("http://host/s3?", "without a query"),
        ("http://host/s3#x", "without a fragment"),
        ("http://host//s3", "a path such as /s3"),
        ("http://host/../b", "a path such as /s3"),
        ("http://host/a%20b", "a path such as /s3"),
        ("http://host/a+b", "a path such as /s3"),
    ],
)
def test_what_is_wrong_is_said_of_the_url_that_was_given(
    url: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(batchgate.ConfigurationError, match=re.escape(why)) as told:
        batchgate.Client(endpoint_url=url)
    assert repr(url) in str(told.value)
    # One that is found is held to the same, by botocore or by us.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", url or "x")
    with pytest.raises(batchgate.ConfigurationError, match="endpoint"):
        _ = batchgate.Client().endpoint_url


@pytest.mark.parametrize("url", ["http://h\0", "\0http://h", "http://h/s3\0"])
def test_what_no_environment_could_hold_is_no_url(url: str) -> None:
    with pytest.raises(batchgate.ConfigurationError, match="is no URL"):
        endpoint_of(url)


@pytest.mark.parametrize("url", ["http://user:sekret@host", "https://sekret@host:9/s3", "ftp://a:sekret@h?q"])
def test_a_password_in_a_url_is_refused_and_not_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(batchgate.ConfigurationError, match="no user and no password") as told:
        batchgate.Client(endpoint_url=url)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(batchgate.ConfigurationError) as found:
        _ = batchgate.Client().endpoint_url
    assert "sekret" not in f"{told.value} {found.value}"


def test_batches_and_gets_are_below_the_path(recwarn: pytest.WarningsRecorder) -> None:
    with Endpoint(honest, base_path="/data/v1") as endpoint:
        assert [p.data for p in endpoint.client().get_many(["a"])] == [body_of("a")]
        assert [seen.path for seen in endpoint.gets + endpoint.posts] == [
            "/data/v1/?batch-get=",
            "/data/v1/b?batch-get=",
        ]
    paths = []

    def remember(exchange: Exchange) -> None:
        paths.append(exchange.path)
        exchange.send(200, {}, b"x")

    with Endpoint(capabilities=refuse(501, "NotImplemented"), objects=remember, base_path="/s3") as endpoint:
        assert [p.data for p in endpoint.client().get_many(["//a/../%20", "s3/b"])] == [b"x", b"x"]
    assert sorted(paths) == ["/s3/b///a/../%2520", "/s3/b/s3/b"]
    assert [str(warning.message).split(" ")[0] for warning in recwarn] == [endpoint.url]


def names_the_bucket(exchange: Exchange) -> None:
    exchange.send(501, {}, b"<Error><Code>NotImplemented</Code><BucketName>s3</BucketName></Error>")


@pytest.mark.parametrize(
    "answer, status, code",
    [(refuse(404, "NoSuchBucket"), 404, "NoSuchBucket"), (names_the_bucket, 501, "NotImplemented")],
)
def test_a_path_that_is_taken_for_a_bucket_is_no_reason_to_fall_back(answer: Answer, status: int, code: str) -> None:
    with Endpoint(capabilities=answer, base_path="/s3") as endpoint:
        with pytest.raises(batchgate.RequestError, match=f"{endpoint.url} .*takes /s3 for a bucket") as told:
            list(endpoint.client().get_many(["a"]))
        assert (told.value.status, told.value.code) == (status, code)
