"""A tool loop of LangChain.

    python langchain_loop.py PROVIDER MODEL TEXT

Run in LangChain's own environment.
"""

import os
import subprocess
import sys
from pathlib import Path

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

URL, KEY = os.environ["HEADRACE_URL"], os.environ["HEADRACE_KEY"]


@tool
def read_file(path: str) -> str:
    """Reads a file."""
    return Path(path).read_text()


@tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout


TOOLS = {"read_file": read_file, "shell": shell}
MODELS = {
    "openai": lambda name: ChatOpenAI(model=name, base_url=f"{URL}/v1", api_key=KEY),
    "responses": lambda name: ChatOpenAI(model=name, base_url=f"{URL}/v1", api_key=KEY, use_responses_api=True),
    "anthropic": lambda name: ChatAnthropic(model=name, base_url=URL, api_key=KEY),
}

if __name__ == "__main__":
    provider, name, text = sys.argv[1:]
    model = MODELS[provider](name).bind_tools(list(TOOLS.values()))
    messages = [HumanMessage(text)]
    while True:
        answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        messages += [TOOLS[call["name"]].invoke(call) for call in answer.tool_calls]
    print(answer.text)
