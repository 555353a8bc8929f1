"""The form that takes a token. Plain HTML: nobody who is not signed in gets more than this."""

from __future__ import annotations

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock: sign in</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 90vh; margin: 1rem; }}
main {{ max-width: 26rem; width: 100%; }}
input, button {{ font: inherit; padding: .6rem .8rem; width: 100%; box-sizing: border-box;
  margin-top: .5rem; border-radius: .4rem; border: 1px solid #888; }}
button {{ background: #0f5f8c; color: #fff; border: 0; cursor: pointer; }}
.failed {{ border-left: .25rem solid #b3261e; padding-left: .7rem; }}
</style></head><body><main>
<h1>Penstock</h1>
{failed}
<form method="post" action="/signin">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button>
</form>
<p>On this machine: open the address that <code>penstock serve</code> printed when it started. It
works once. Else <code>penstock tokens create NAME --role operate</code> makes a token.</p>
</main></body></html>
"""
_FAILED = '<p class="failed" role="alert">This token is not valid, or it was used before.</p>'


def sign_in_page(*, failed: bool = False) -> bytes:
    return _PAGE.format(failed=_FAILED if failed else "").encode()
