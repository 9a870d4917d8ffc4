"""What to say where there is no connection: what the way was, and what to look at."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit


def way_to(url: str) -> str:
    """Return which proxy leads to *url*, as the environment says; empty where none does.

    By ``urllib.request``, which httpx asks too. A name and a password in the proxy's URL are left out.
    """
    from urllib.request import getproxies, proxy_bypass  # httpx has imported it by now.

    parts = urlsplit(url)
    proxies = getproxies()
    name = next((name for name in (parts.scheme, "all") if proxies.get(name)), None)
    if name is None or proxy_bypass(parts.netloc):
        return ""
    return f" by the proxy {proxies[name].rpartition('@')[2]} ({name.upper()}_PROXY)"


def what_to_look_at(links: Sequence[BaseException], way: str) -> str:
    """Return a question that leads to what may be wrong.

    Args:
        links: The error, and what it came from.
        way: What ``way_to`` returned.
    """
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in links):
        return "SSL_CERT_FILE can name the certificates of an authority of your own"
    if any(isinstance(link, ssl.SSLError) for link in links):
        return "does the server speak TLS? If not, base_url begins with http://"
    if way:
        return "is the proxy running, and the right one? NO_PROXY names hosts to reach without it"
    if any(isinstance(link, socket.gaierror) for link in links):
        return "is there a network, and is base_url right?"
    return "is the server running, and is base_url right?"
