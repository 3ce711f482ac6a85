"""Proves to be Ann with tokens that PyJWT makes, and opens what is sealed for her phone with pyhpke.

`secure_client.py tokens` shows the issuer's keys itself, on ISSUER_PORT, over TLS; what does not hold
is an assertion. `secure_client.py seal` and `secure_client.py open` read one object from the standard
input.
"""

import base64
import hashlib
import hmac
import http.client
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

import jwt
import pyhpke
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519

ISSUER, AUDIENCE = "https://issuer.example", "shop-app"
SUITE = pyhpke.CipherSuite.new(
    pyhpke.KEMId.DHKEM_X25519_HKDF_SHA256, pyhpke.KDFId.HKDF_SHA256, pyhpke.AEADId.AES256_GCM
)
INFO = b"carillon secure payload v1"


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# ── An issuer ───────────────────────────────────────────────────────────────────────────────────


class Issuer:
    """Shows a JWK set at /keys, leads elsewhere at /elsewhere, and counts who asks."""

    def __init__(self, port):
        self.keys, self.asked = [], []
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.asked.append(self.path)
                if self.path == "/elsewhere":
                    self.send_response(302)
                    self.send_header("Location", f"https://127.0.0.1:{port}/keys")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = json.dumps({"keys": issuer.keys}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.environ["CERTIFICATE"], os.environ["CERTIFICATE_KEY"])
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"https://127.0.0.1:{port}"

    def show(self, *pairs):
        self.keys = [jwk(kid, key) for kid, key in pairs]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def jwk(kid, key):
    algorithm = jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else (
        jwt.algorithms.RSAAlgorithm
    )
    object = algorithm.to_jwk(key.public_key(), as_dict=True)
    return {**object, "kid": kid, "use": "sig"}


def es256():
    return ec.generate_private_key(ec.SECP256R1())


def rs256():
    return rsa.generate_private_key(65537, 2048)


def token(key, algorithm="ES256", kid=None, without=(), **changes):
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300}
    claims.update(changes)
    for name in without:
        del claims[name]
    headers = {"kid": kid} if kid else {}
    return jwt.encode(claims, key, algorithm=algorithm, headers=headers)


# ── Carillon ────────────────────────────────────────────────────────────────────────────────────


def read(bearer, path="/api/notifications", app=None):
    service = urllib.parse.urlsplit(os.environ["SECURE_URL"])
    connection = http.client.HTTPConnection(service.hostname, service.port)
    headers = {"Authorization": f"Bearer {bearer}"}
    if app:
        headers["X-LC-Id"] = app
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def carillon(*arguments):
    return subprocess.run(
        [os.environ["CARILLON"], *arguments], capture_output=True, text=True, check=False
    )


def login(app, url):
    return carillon(
        "login", "set", app, "--issuer", ISSUER, "--audience", AUDIENCE, "--jwks-url", url
    )


def eventually(what, holds):
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"not within 30 s: {what}")


def expect(what, bearer, status, **more):
    found, text = read(bearer, **more)
    assert found == status, f"{what}: {found} {text}"


def tokens():
    app, other = os.environ["APP"], os.environ["OTHER_APP"]
    issuer = Issuer(int(os.environ["ISSUER_PORT"]))
    elliptic, classic, rotated = es256(), rs256(), es256()
    issuer.show(("e1", elliptic), ("r1", classic))

    # A redirect, or an address that is not allowed, is not followed.
    told = login(app, issuer.url + "/elsewhere")
    assert told.returncode != 0 and issuer.asked == ["/elsewhere"], (told.stderr, issuer.asked)
    hidden = Issuer(int(os.environ["HIDDEN_PORT"]))
    told = login(app, hidden.url + "/keys")
    assert told.returncode != 0 and hidden.asked == [], (told.stderr, hidden.asked)
    told = login(app, issuer.url + "/keys")
    assert told.returncode == 0, told.stderr
    good = token(elliptic, kid="e1")
    # A login is read at once, or within five seconds.
    eventually("the login is known", lambda: read(good)[0] == 200)

    expect("ES256", good, 200)
    expect("RS256", token(classic, "RS256", "r1"), 200)
    expect("without a kid", token(elliptic), 200)
    expect("several audiences", token(elliptic, kid="e1", aud=["x", AUDIENCE]), 200)
    expect("by the app's name", good, 200, app=app)
    expect("in the path", good, 200, path=f"/{app}/api/notifications")
    expect("another app's name", good, 401, app=other)
    now = int(time.time())
    expect("within the clocks' difference", token(elliptic, kid="e1", exp=now - 30), 200)

    # A new key is loaded without a restart, with the first token that it has signed.
    issuer.show(("e2", rotated), ("r1", classic))
    eventually("a rotated key", lambda: read(token(rotated, kid="e2"))[0] == 200)
    # It is read by each loop of the service, whichever gets the connection.
    eventually(
        "a key that was taken away",
        lambda: all(read(token(elliptic, kid="e1"))[0] == 401 for _ in range(12)),
    )

    public = elliptic.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    parts = token(rotated, kid="e2").split(".")
    header = json.dumps({"alg": "HS256", "kid": "e2"}).encode()
    forged = base64.urlsafe_b64encode(header).rstrip(b"=").decode() + "." + parts[1]
    digest = hmac.new(public, forged.encode(), hashlib.sha256).digest()
    forged += "." + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    nobody = es256()
    refused = {
        "a wrong issuer": token(rotated, kid="e2", iss="https://other.example"),
        "a wrong audience": token(rotated, kid="e2", aud="other"),
        "no audience": token(rotated, kid="e2", without=["aud"]),
        "no algorithm": token("", "none", "e2"),
        "HS256 by the public key": forged,
        "HS256 by a secret": token("s" * 32, "HS256", "e2"),
        "expired": token(rotated, kid="e2", exp=now - 120),
        "without an end": token(rotated, kid="e2", without=["exp"]),
        "not yet valid": token(rotated, kid="e2", nbf=now + 600),
        "an unknown key": token(nobody, kid="e9"),
        "another's signature under a known kid": token(nobody, kid="e2"),
        "a key that was taken away": token(elliptic, kid="e1"),
        "no claim": token(rotated, kid="e2", without=["sub"]),
        "a claim that is no text": unsubject(rotated),
        "a part too few": ".".join(parts[:2]),
        "a change": parts[0] + "." + parts[1][:-2] + "." + parts[2],
        "no token": "x",
        "too long": "x" * 20_000,
    }
    seen = set()
    for what, bearer in refused.items():
        status, text = read(bearer)
        assert status == 401, f"{what}: {status} {text}"
        seen.add(text)
    assert len(seen) == 1, seen

    # A caller whose key is known is not affected.
    issuer.stop()
    expect("its issuer is away", token(rotated, kid="e2"), 200)
    expect("its issuer is away, RS256", token(classic, "RS256", "r1"), 200)
    print(json.dumps({"token": token(rotated, kid="e2", exp=now + 3000)}))


def unsubject(key):
    """A token whose claim is no text, which PyJWT itself refuses to make."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": 7, "exp": now + 300}
    payload = json.dumps(claims).encode()
    return jwt.api_jws.PyJWS().encode(payload, key, "ES256", {"kid": "e2"})


# ── HPKE ────────────────────────────────────────────────────────────────────────────────────────


def open_sealed():
    """Opens an answer as its phone does."""
    given = json.load(sys.stdin)
    key = x25519.X25519PrivateKey.from_private_bytes(unpadded(given["privateKey"]))
    sealed = unpadded(given["payload"])
    recipient = SUITE.create_recipient_context(
        sealed[:32], pyhpke.KEMKey.from_pyca_cryptography_key(key), info=INFO
    )
    print(recipient.open(sealed[32:], aad=given["aad"].encode()).decode())


def seal():
    """Seals for a key that is given."""
    given = json.load(sys.stdin)
    key = x25519.X25519PublicKey.from_public_bytes(unpadded(given["publicKey"]))
    encapsulated, sender = SUITE.create_sender_context(
        pyhpke.KEMKey.from_pyca_cryptography_key(key), info=INFO
    )
    sealed = encapsulated + sender.seal(given["text"].encode(), aad=given["aad"].encode())
    print(base64.urlsafe_b64encode(sealed).rstrip(b"=").decode())


if __name__ == "__main__":
    {"tokens": tokens, "open": open_sealed, "seal": seal}[sys.argv[1]]()
