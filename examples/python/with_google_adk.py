"""An agent of Google's ADK in the team: a plugin holds its calls, and counts what its model uses.

pip install lastword-sdk google-adk
LASTWORD_TOKEN=$(lastword agent add coder) python with_google_adk.py
"""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.genai import types

from lastword import Agent, Refused, Rejected, Turn
from lastword.ext import Denied, ask_agent, current_turn, held, hint, list_agents, prompt, serving


class Lastword(BasePlugin):
    def __init__(self, *tools: str) -> None:
        super().__init__("lastword")
        self._tools = tools

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        if tool.name in self._tools:
            decision = await held(current_turn(), tool.name, dict(tool_args))
            if isinstance(decision, Denied):
                return {"result": decision.text}
            tool_args.clear()
            tool_args.update(decision.arguments)

    async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Exception) -> Any:
        return {"result": hint(error)} if isinstance(error, Refused | Rejected) else None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        if used := llm_response.usage_metadata:
            tokens = {"input_tokens": used.prompt_token_count or 0, "output_tokens": used.candidates_token_count or 0}
            current_turn().spent(model=llm_response.model_version, **tokens)


def serve(agent: Agent, model_agent: LlmAgent, *tools: str) -> None:
    """Serves an agent; the calls of these tools are held."""

    @agent.on_request()
    async def handle(turn: Turn) -> str:
        runner = InMemoryRunner(app=App(name="team", root_agent=model_agent, plugins=[Lastword(*tools)]))
        answer = ""
        with serving(turn):
            session = await runner.session_service.create_session(app_name="team", user_id=turn.sender)
            said = types.Content(role="user", parts=[types.Part(text=prompt(turn.message))])
            async for event in runner.run_async(user_id=turn.sender, session_id=session.id, new_message=said):
                if event.is_final_response() and event.content:
                    answer = "".join(part.text or "" for part in event.content.parts or [])
        return answer


async def push(branch: str) -> str:
    """Pushes a branch."""
    return f"pushed {branch}"


def start(agent: Agent, model: Any) -> None:
    serve(agent, LlmAgent(name="coder", model=model, tools=[ask_agent, list_agents, push]), "push")


if __name__ == "__main__":
    coder = Agent.from_env()
    start(coder, "gemini-3-flash")
    coder.run()
