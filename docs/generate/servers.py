# ruff: noqa: E501, ISC004
"""The catalogue of model servers: what each says when it refuses a request, and where that is documented.

The tests say all of it over the wire. ``{window}`` is where a server names the size of its window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Server:
    """One server. ``too_long`` maps what it says of a conversation that is too long to the source.

    ``refuses`` has a part of a request, what it says when it refuses that, and the source. ``note`` is for whoever
    runs it. ``withheld`` maps what it says of a model that its settings keep out to the source.
    """

    too_long: Mapping[str, str] = field(default_factory=dict)
    refuses: Sequence[tuple[str, str, str]] = ()
    note: str = ""
    withheld: Mapping[str, str] = field(default_factory=dict)


PI = "earendil-works/pi, packages/ai/src/utils/overflow.ts"
SERVERS: Mapping[str, Server] = {
    "vLLM": Server(
        {
            "This model's maximum context length is {window} tokens. However, you requested 122946 tokens (112946 in the "
            "messages, 10000 in the completion).": "vllm-project/vllm#20409",
            "The prompt (total length 25938) is too long to fit into the model (context length {window}).": (
                "vllm-project/vllm#12165"
            ),
            "Input prompt (36893 tokens) is too long and exceeds limit of {window}": "vllm-project/vllm#10440",
            "This model's maximum context length is {window} tokens. However, your prompt contains at least 8193 input "
            "tokens, which exceeds this limit even without any output tokens.": "vllm-project/vllm, renderers/params.py",
            "This model's maximum context length is {window} tokens. However, your prompt contains 500000 characters "
            "(more than 131072 characters, which is the upper bound for {window} input tokens).": (
                "vllm-project/vllm, renderers/params.py"
            ),
            "You passed 9000 input tokens and requested 100 output tokens. However, the model's context length is "
            "only {window} tokens, resulting in a maximum input length of 8092 tokens.": "vllm-project/vllm, before renderers/params.py",
        },
        (
            (
                "stream_options",
                "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not "
                "permitted', 'input': {}}]",
                "modelscope/ms-agent#489",
            ),
            (
                "tools",
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
                "vllm-project/vllm#9986",
            ),
            (
                "tools",
                'tool_choice="required" requires --tool-call-parser to be set',
                "vllm-project/vllm, renderers/online_renderer.py",
            ),
            ("images", "/models/x is not a multimodal model", "vllm-project/vllm#23402"),
        ),
        "`--enable-auto-tool-choice --tool-call-parser NAME` gives it tools; `--max-model-len` is its window.",
    ),
    "SGLang": Server(
        {
            "The input (85050 tokens) is longer than the model's context length ({window} tokens).": (
                "sgl-project/sglang#8096"
            ),
            "Requested token count exceeds the model's maximum context length of {window} tokens. You requested a "
            "total of 9000 tokens.": "sgl-project/sglang#3642",
        },
        note="`--tool-call-parser NAME` gives it tools; `--context-length` is its window.",
    ),
    "llama.cpp": Server(
        {
            "request (9000 tokens) exceeds the available context size ({window} tokens), try increasing it": (
                "ggml-org/llama.cpp#15780"
            ),
            "the request exceeds the available context size. try increasing the context size or enable context "
            "shift": "ggml-org/llama.cpp#15780",
            "Requested tokens (9000) exceed context window of {window}": "abetlen/llama-cpp-python#416",
        },
        (
            ("system", "Jinja Exception: System role not supported", "nomic-ai/gpt4all#3282"),
            (
                "system",
                "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...",
                "idiap/sdialog#122",
            ),
            ("tools", "tools param requires --jinja flag", "containers/ramalama#988"),
            ("images", "image input is not supported by this server", "ggml-org/llama.cpp#13566"),
        ),
        "`--jinja` gives it tools, `--mmproj FILE` pictures; `-c` is its window.",
    ),
    "Ollama": Server(
        {"prompt too long; exceeded max context length by 1734 tokens": PI},
        (
            ("tools", "registry.ollama.ai/library/gemma:2b does not support tools", "ollama/ollama#14795"),
            (
                "images",
                "this model is missing data required for image input",
                "valentinfrlch/ha-llmvision#691",
            ),
        ),
        "`OLLAMA_CONTEXT_LENGTH` is its window. It cuts most longer prompts without a word; a note then says so.",
    ),
    "LM Studio": Server(
        {
            "The number of tokens to keep from the initial prompt is greater than the context length.": (
                "lmstudio-ai/lmstudio-bug-tracker#2256"
            ),
            "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with "
            "context length of only {window} tokens, which is not enough.": "lmstudio-ai/lmstudio-bug-tracker#546",
        },
        (
            (
                "images",
                "Model does not support images. Please use a model that does.",
                "lmstudio-ai/lmstudio-bug-tracker#362",
            ),
        ),
    ),
    "OpenAI": Server(
        {
            "Your input exceeds the context window of this model. Please adjust your input and try again.": "openai/codex#3177"
        },
        (
            (
                "max_tokens",
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                "instead.",
                "openai/openai-python#2046",
            ),
            (
                "temperature",
                "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value "
                "is supported.",
                "openai/openai-python#1724",
            ),
            (
                "system",
                "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
                "BerriAI/litellm#5671",
            ),
            (
                "parallel_tool_calls",
                "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
                "evalstate/fast-agent#279",
            ),
            (
                "stream",
                "Unsupported value: 'stream' does not support true with this model. Supported values are: false.",
                "github/gh-models#31",
            ),
        ),
    ),
    "Azure": Server(
        {
            "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in 509178 tokens. "
            "Please reduce the length of the messages.": "BerriAI/litellm#15968",
            "Request body too large for model. Max size: {window} tokens.": "RooCodeInc/Roo-Code#3344",
        },
        (
            (
                "stream_options",
                "Validation error at #/stream_options: Extra inputs are not permitted",
                "microsoft/semantic-kernel#10510",
            ),
            (
                "stream_options",
                "Extra parameters ['stream_options'] are not allowed when extra-parameters is not set or set to be "
                "'error'.",
                "CherryHQ/cherry-studio#9214",
            ),
            (
                "system",
                "Invalid value: 'developer'. Supported values are: 'system', 'assistant', 'user', 'function', and "
                "'tool'.",
                "run-llama/llama_index#17748",
            ),
        ),
    ),
    "Anthropic": Server(
        {
            "prompt is too long: 219898 tokens > {window} maximum": "earendil-works/pi#102",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > {window}": "continuedev/continue#6080",
        },
        (
            ("temperature", "`temperature` is deprecated for this model.", "The-PR-Agent/pr-agent#2456"),
            ("system", "role 'system' is not supported on this model", "anthropics/claude-code#61412"),
        ),
    ),
    "Gemini": Server(
        {
            "The input token count (1200293) exceeds the maximum number of tokens allowed ({window}).": (
                "google-gemini/gemini-cli#6678"
            ),
        },
        (
            (
                "system",
                "Developer instruction is not enabled for models/gemma-3-27b-it",
                "0xPlaygrounds/rig#788",
            ),
        ),
    ),
    "OpenRouter": Server(
        {
            "This endpoint's maximum context length is {window} tokens. However, you requested about 42832 tokens "
            "(42832 of text input).": "refly-ai/refly#1177"
        },
        (
            ("tools", "No endpoints found that support tool use.", "mastra-ai/mastra#2839"),
            ("images", "No endpoints found that support image input", "NousResearch/hermes-agent#23411"),
            (
                "tool_choice",
                "No endpoints found that support the provided 'tool_choice' value. To learn more about provider "
                "routing, visit: https://openrouter.ai/docs/provider-routing",
                "zed-industries/zed#36094",
            ),
            (
                "cache_control",
                "No endpoints found that support cache control",
                "musistudio/claude-code-router#251",
            ),
            (
                "cache_control",
                "tools.3.cache_control: Extra inputs are not permitted",
                "earendil-works/pi#7938",
            ),
        ),
        withheld={
            "No endpoints found matching your data policy (Paid model training). Configure: "
            "https://openrouter.ai/settings/privacy": "unoplat/unoplat-code-confluence#1080",
            "No endpoints available matching your guardrail restrictions and data policy. Configure: "
            "https://openrouter.ai/settings/privacy": "truefoundry/models#826",
            "No allowed providers are available for the selected model.": "agent0ai/agent-zero#1255",
            "No endpoints found that can handle the requested parameters.": "seen in clients' code; no report found",
        },
        note="Its privacy settings, and `provider` in `params`, decide which servers of a model may be asked.",
    ),
    "LiteLLM": Server(
        {
            "litellm.BadRequestError: litellm.ContextWindowExceededError: AnthropicError - prompt is too long: 210543 "
            "tokens > {window} maximum": "OpenHands/OpenHands#4894"
        },
        (
            (
                "presence_penalty",
                "litellm.UnsupportedParamsError: groq does not support parameters: {'presence_penalty': 0.0, "
                "'frequency_penalty': 0.0}, for model=x",
                "lm-sys/RouteLLM#32",
            ),
            (
                "response_format",
                "together_ai does not support parameters: response_format, for model=x",
                "BerriAI/litellm, llms/together_ai/chat/transformation.py",
            ),
            (
                "tools",
                "Function calling is not supported by together_ai. To add it to the prompt, set "
                "litellm.add_function_to_prompt = True.",
                "BerriAI/litellm#1827",
            ),
        ),
        "`drop_params: true` lets it leave out what its provider refuses.",
    ),
    "Groq": Server({"Please reduce the length of the messages or completion.": "letta-ai/letta#1963"}),
    "Mistral": Server(
        {
            "Prompt contains 40000 tokens, too large for model with {window} maximum context length": "BerriAI/litellm#21647"
        },
        (
            (
                "tools",
                '[{"type":"extra_forbidden","loc":["body","tools"],"msg":"Extra inputs are not permitted","input":[]}]',
                "partITech/php-mistral#76",
            ),
        ),
    ),
    "DeepSeek": Server(
        refuses=(
            (
                "tool_choice",
                "deepseek-reasoner does not support this tool_choice",
                "deepseek-ai/awesome-deepseek-integration#598",
            ),
            (
                "system",
                "messages[0].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`",
                "earendil-works/pi#1048",
            ),
            (
                "system",
                "unknown variant 'system', expected 'user' or 'assistant'",
                "farion1231/cc-switch#3281",
            ),
        ),
    ),
    "xAI": Server(
        {
            "This model's maximum prompt length is {window} but the request contains 537812 tokens.": "cline/cline#3120"
        },
        (
            ("presence_penalty", "Argument not supported on this model: presencePenalty", "n8n-io/n8n#14581"),
            (
                "presence_penalty",
                "Model grok-4-1-fast-reasoning does not support parameter presencePenalty.",
                "open-webui/open-webui#21266",
            ),
        ),
    ),
    "Moonshot": Server(
        {
            "total message size 2100954 exceeds limit 2097152": "MoonshotAI/kimi-code#1862",
            "Invalid request: Your request exceeded model token limit: {window} (requested: 269030)": (
                "MoonshotAI/kimi-cli#2011"
            ),
        },
        (
            (
                "temperature",
                "invalid temperature: only 1 is allowed for this model",
                "opencyvis/opencyvis-phone#12",
            ),
        ),
    ),
    "Z.ai": Server(
        {
            "Prompt exceeds max length": "zeroclaw-labs/zeroclaw#4124",
            "model_context_window_exceeded": "anomalyco/opencode#18813",
        }
    ),
    "DashScope": Server(
        {
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {window}]": (
                "QwenLM/qwen-code#3652"
            ),
        },
        (
            (
                "system",
                "developer is not one of ['system', 'assistant', 'user', 'tool', 'function'] - 'messages.['0].role'",
                "haru/redmine_ai_helper#242",
            ),
        ),
    ),
    "MiniMax": Server({"invalid params, context window exceeds limit (2013)": "MiniMax-AI/MiniMax-M2#119"}),
    "Volcengine": Server(
        {"Total tokens of image and text exceed max message tokens": "bytedance/deer-flow#583"}
    ),
    "Fireworks": Server(
        refuses=(
            (
                "stream_options",
                "Extra inputs are not permitted, field: 'stream_options'",
                "FlowiseAI/Flowise#2866",
            ),
        ),
    ),
    "Text Generation Inference": Server(
        {
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: 9000 `inputs` "
            "tokens and 1000 `max_new_tokens`": "huggingface/text-generation-inference#628",
            "Input validation error: `inputs` must have less than {window} tokens. Given: 9168": (
                "huggingface/text-generation-inference#695"
            ),
        },
    ),
    "TensorRT-LLM": Server(
        {
            "Cannot process new request: Prompt length (9056) exceeds maximum sequence length ({window})": (
                "triton-inference-server/tensorrtllm_backend#141"
            ),
        },
    ),
    "Cohere": Server(
        {
            "too many tokens: total number of tokens (prompt and prediction) cannot exceed {window} - received 9354.": (
                "cohere-ai/sandbox-topically#4"
            ),
        },
    ),
    "Bedrock": Server({"Input is too long for requested model.": "anthropics/claude-code#8637"}),
    "Copilot": Server(
        {"prompt token count of 70000 exceeds the limit of {window}": "microsoft/vscode#289219"}
    ),
    "others": Server(
        {"context length exceeded": PI, "token limit exceeded": PI},
        (
            (
                "parallel_tool_calls",
                "create() got an unexpected keyword argument 'parallel_tool_calls'",
                "langchain-ai/langchain-google#816",
            ),
            (
                "stream_options",
                "Unknown parameter: 'stream_options'.",
                "QuantumNous/new-api#418",
            ),
            (
                "strict",
                "tools.0.function.strict: Extra inputs are not permitted",
                "not found again; pydantic's form",
            ),
            (
                "store",
                'Invalid JSON payload received. Unknown name "store": Cannot find field.',
                "earendil-works/pi#4891",
            ),
            (
                "store",
                "unsupported request field(s): store",
                "seen in the code of several small gateways; no report found",
            ),
            (
                "tools",
                "Tool/function calling is not supported by this endpoint.",
                "seen in the code of several small gateways; no report found",
            ),
        ),
    ),
}
