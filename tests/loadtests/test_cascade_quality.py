"""The questions with known answers, and their grading."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from loadtests.cascade_quality import Quality, ReferenceAnswer, measure, questions, table


def test_the_questions_are_distinct_and_do_not_contain_their_answers() -> None:
    listed = questions()
    assert len(listed) == 100
    assert len({each.question for each in listed}) == 100
    assert [each.question for each in listed if not each.answers or each.is_correct(each.question)] == []


def test_an_answer_is_a_whole_word_in_any_case() -> None:
    seven = ReferenceAnswer("?", ("seven", "7"))
    assert seven.is_correct("There are Seven days.")
    assert seven.is_correct("7")
    assert not seven.is_correct("seventeen, 17, 70")


class Echo(BaseHTTPRequestHandler):
    """Answers a chat with its own question."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        answer = json.dumps({"choices": [{"message": body["messages"][0]}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def test_a_model_is_measured_over_http() -> None:
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            listed = [ReferenceAnswer("is it blue?", ("blue",)), ReferenceAnswer("is it red?", ("green",))]
            result = measure(f"http://127.0.0.1:{server.server_port}", "key", "small", listed, {"max_tokens": 2})
        finally:
            server.shutdown()
            thread.join()
    assert result == Quality("small", 2, 1, 6, 4, result.median_seconds)
    assert "| `small` | 1 of 2 | 6 | 4 |" in table([result])
