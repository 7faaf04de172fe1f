#!/usr/bin/env python3
"""The stock openai client against failsoft: the base URL is the only change.

Prints the answer word by word and which tier it came from. Needs: pip install openai
"""

import os
import sys

from openai import OpenAI

BASE = os.environ.get("FAILSOFT_URL", "http://127.0.0.1:8080")


def main():
    client = OpenAI(base_url=f"{BASE}/v1", api_key="unused", max_retries=0)
    question = " ".join(sys.argv[1:]) or "Name three colours."
    answer = client.chat.completions.with_raw_response.create(
        model="chat", stream=True, max_tokens=60,
        messages=[{"role": "user", "content": question}])
    print(f"[tier: {answer.headers.get('x-failsoft-tier', '?')}"
          f"{', degraded: ' + answer.headers['x-failsoft-degraded'] if 'x-failsoft-degraded' in answer.headers else ''}]")
    for chunk in answer.parse():
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
