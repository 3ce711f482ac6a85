"""Measures the pages of the console as a browser asks for them, and prints one JSON object.

usage: console_pages.py PORT PID APP MASTER_KEY PAGES

Signs in with the master key, and follows the links of the app's pages to the depth of two: of the
addresses that differ only in an id, a number or a query's value, the first counts. To these come the
searches of `SEARCHES`, and the review of a draft for everyone. Each is then read 20 times in turns,
over one connection, after one reading that is not counted. The file `PAGES` gets a line for each:
p95 and most in milliseconds, bytes, address.

`p50` is that of all answers, `p95` that of the page whose own is the worst (milliseconds); `counted`
is the worst p95 of pages that count devices because a person asked for it, reviews included; `bytes` is the largest
page as gzip (KB); `memory` is the most that the service had resident (MB); `pages` is how many there
are.
"""

import gzip
import html
import http.client
import json
import re
import sys
import time
import urllib.parse
import uuid

PORT, PID, APP, KEY, PAGES = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
HOME = "/console/" + APP
ROUNDS, DEPTH = 20, 2
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{24}|\d+")
DEVICE = "000000000000000000000001"
SEARCHES = (
    "/devices?by=channel&q=half", "/devices?by=channel&q=none", "/devices?by=identity&q=user-5",
    "/devices?q=00000000000000000001", "/devices?q=none", "/pushes?q=push-5000", "/pushes?q=none",
    "/pushes?status=done", "/pushes?status=failed", "/pushes?status=scheduled",
    "/explain?installation=" + DEVICE, "/explain?installation=" + DEVICE + "&push=%s",
)
connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)


def ask(method, path, body=None, **headers):
    connection.request(method, path, body, {"Accept-Encoding": "gzip", **headers})
    answer = connection.getresponse()
    return answer, answer.read()


def signed_in():
    form = urllib.parse.urlencode({"app": APP, "key": KEY})
    answer, _ = ask(
        "POST", "/console/sign-in", form, **{"Content-Type": "application/x-www-form-urlencoded"}
    )
    if answer.status != 303:
        raise SystemExit("the sign-in answered %d" % answer.status)
    return {"Cookie": answer.getheader("Set-Cookie").split(";")[0]}


def text(path, cookie):
    """The page's text; `None` if there is no page."""
    answer, body = ask("GET", path, **cookie)
    if answer.status != 200 or "text/html" not in answer.getheader("Content-Type", ""):
        return None
    return (gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body).decode()


def links(text):
    for link in re.findall(r'<a [^>]*href="([^"#]+)', text):
        link = html.unescape(link)
        if (link + "/").startswith(HOME + "/") and ".csv" not in link:
            yield link


def found(cookie):
    pages, patterns, wave = [], set(), [HOME]
    for _ in range(DEPTH + 1):
        following = []
        for path in wave:
            plain = urllib.parse.urlsplit(path)
            names = ",".join(sorted(urllib.parse.parse_qs(plain.query)))
            pattern = (ID.sub(":id", plain.path), names)
            if pattern in patterns:
                continue
            patterns.add(pattern)
            if (page := text(path, cookie)) is not None:
                pages.append(path)
                following += links(page)
        wave = following
    return pages


def review(cookie):
    """The address of the review of a draft for every device."""
    token = re.search(r'name="token" value="([^"]+)', text(HOME + "/send", cookie)).group(1)
    path = HOME + "/send/" + str(uuid.uuid4())
    form = {"token": token, "who": "everyone", "text": "to all", "do": "review"}
    answer, body = ask(
        "POST", path, urllib.parse.urlencode(form),
        **{"Content-Type": "application/x-www-form-urlencoded", **cookie}
    )
    if answer.status != 303:
        raise SystemExit("the draft got %d: %s" % (answer.status, body[:2000]))
    return answer.getheader("Location")


def main():
    cookie = signed_in()
    pages = found(cookie)
    push = next(page for page in pages if re.search("/pushes/[0-9a-f-]+$", page)).split("/")[-1]
    pages += [HOME + (search % push if "%s" in search else search) for search in SEARCHES]
    pages.append(review(cookie))
    times, sizes = {page: [] for page in pages}, {}
    for _ in range(ROUNDS):
        for page in dict.fromkeys(pages):
            began = time.perf_counter()
            answer, body = ask("GET", page, **cookie)
            times[page].append((time.perf_counter() - began) * 1000)
            if answer.status != 200:
                raise SystemExit("%s answered %d" % (page, answer.status))
            is_packed = answer.getheader("Content-Encoding") == "gzip"
            sizes[page] = len(body if is_packed else gzip.compress(body))
    for each in times.values():
        each.sort()
    worst = {page: each[int(ROUNDS * 0.95)] for page, each in times.items()}
    counts = [page for page in worst if "count=" in page or page.endswith("/review")]
    with open(PAGES, "w") as file:
        for page in sorted(pages, key=worst.get, reverse=True):
            file.write("%.1f %.1f %d %s\n" % (worst[page], times[page][-1], sizes[page], page))
    every = sorted(time for each in times.values() for time in each)
    with open("/proc/%d/status" % PID) as file:
        memory = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    print(
        json.dumps(
            {
                "pages": len(times), "p50": every[len(every) // 2],
                "p95": max(worst[page] for page in worst if page not in counts),
                "counted": max(worst[page] for page in counts),
                "bytes": max(sizes.values()) / 1024, "memory": memory * 1024 / 1e6,
            }
        )
    )


main()
