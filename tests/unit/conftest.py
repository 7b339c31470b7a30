"""Certificates for TLS, made once for all tests here."""

import shutil

import pytest
from support.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl is not installed")
    return Certificates(tmp_path_factory.mktemp("certificates"))
