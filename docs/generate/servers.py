# ruff: noqa: E501, ISC004, RUF001
"""The catalogue of model servers: what each says when it refuses a request, and where that is documented.

Also the marks that models write into their text, and that a server leaves there if nobody told it of them. The tests
say all of it over the wire, and try each mark. ``{window}`` is where a server names the size of its window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Server:
    """One server. ``too_long`` maps what it says of a conversation that is too long to the source.

    ``refuses`` has a part of a request, what it says when it refuses that, and the source. ``note`` is for whoever
    runs it. ``withheld`` maps what it says of a model that its settings keep out to the source. ``room`` has what it
    says when it has too few tokens for the answer, the tokens and the window that it names, and the source.
    """

    too_long: Mapping[str, str] = field(default_factory=dict)
    refuses: Sequence[tuple[str, str, str]] = ()
    note: str = ""
    withheld: Mapping[str, str] = field(default_factory=dict)
    room: Sequence[tuple[str, int | None, int | None, str]] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in the text of these models, and the source; ``end`` is where it stops to count."""

    text: str
    models: str
    source: str
    end: str = ""


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
        room=(
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 4096 "
                "tokens and your request has 1200 input tokens (8192 > 4096 - 1200).",
                2896,
                4096,
                "stepfun-ai/Step-Audio-R1#3",
            ),
            (
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the "
                "messages, 4000 in the completion). Please reduce the length of the messages or completion.",
                3096,
                4096,
                "vllm-project/vllm#20409",
            ),
            (
                "This model's maximum context length is 4096 tokens. However, you requested 4096 output tokens and your "
                "prompt contains at least 96 input tokens, for a total of at least 4192 tokens.",
                4000,
                4096,
                "vllm-project/vllm#42474",
            ),
            (
                "You passed 3073 input tokens and requested 128000 output tokens. However, the model's context length is "
                "only 131072 tokens, resulting in a maximum input length of 3072 tokens.",
                127999,
                131072,
                "vllm-project/vllm, before renderers/params.py",
            ),
            (
                "max_tokens=4096 cannot be greater than max_model_len=max_total_tokens=2048. Please request fewer output "
                "tokens.",
                2048,
                None,
                "mateaix/mateclaw#481",
            ),
        ),
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
        room=(
            (
                "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
                "5000 tokens: 1000 tokens from the input messages and 4000 tokens for the completion.",
                3096,
                4096,
                "sgl-project/sglang#3642",
            ),
        ),
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
        room=(
            (
                "max_tokens is too large: 5000. This model supports at most 4096 completion tokens, whereas you provided "
                "5000.",
                4096,
                None,
                "ChatGPTNextWeb/NextChat#3195",
            ),
            (
                "Invalid 'max_tokens': integer above maximum value. Expected a value <= 4096, but got 8192 instead.",
                4096,
                None,
                "not found again",
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
        room=(
            (
                "max_tokens: 4096 > 2048, which is the maximum allowed number of output tokens for claude-x",
                2048,
                None,
                "not found again",
            ),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease either",
                10000,
                200000,
                "continuedev/continue#6080",
            ),
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
        room=(
            (
                "Unable to submit request because it has a maxOutputTokens value of 9000 but the supported range is from "
                "1 (inclusive) to 8193 (exclusive). Update the value and try again.",
                8192,
                None,
                "stackblitz-labs/bolt.diy#955",
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
        room=(
            (
                "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens (1000 of "
                "text input, 8000 in the output).",
                7192,
                8192,
                "refly-ai/refly#1177",
            ),
        ),
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
    "Groq": Server(
        {"Please reduce the length of the messages or completion.": "letta-ai/letta#1963"},
        room=(
            (
                "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
                "`context_window` for this model",
                8192,
                None,
                "RooCodeInc/Roo-Code#5136",
            ),
        ),
    ),
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
        room=(
            (
                "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
                8192,
                None,
                "deepseek-ai/DeepSeek-V3#69",
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
        room=(
            (
                "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 2048]",
                2048,
                None,
                "open-webui/open-webui#10507",
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
        room=(
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 2000 `inputs` tokens "
                "and 4000 `max_new_tokens`",
                2097,
                4097,
                "huggingface/text-generation-inference#628",
            ),
        ),
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
    "Bedrock": Server(
        {"Input is too long for requested model.": "anthropics/claude-code#8637"},
        room=(
            (
                "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value "
                "that is lower than 4096.",
                4096,
                None,
                "sigoden/aichat#813",
            ),
        ),
    ),
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
                "strict",
                '[{"type":"extra_forbidden","loc":["body","tools",0,"strict"],"msg":"Extra inputs are not '
                'permitted","input":false}]',
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
        room=(("max_completion_tokens is too large", None, None, "seen, no source"),),
    ),
}

VLLM, SGLANG = "vllm-project/vllm, vllm/", "sgl-project/sglang, python/sglang/srt/"
OPEN_WEBUI = "open-webui/open-webui, backend/open_webui/utils/middleware.py"
REASONING = f"{SGLANG}parser/reasoning_parser.py"
HARMONY = f"{SGLANG}parser/harmony_parser.py"
COMMAND = f"{VLLM}reasoning/cohere_command_reasoning_parser.py"
HORIZON = f"{VLLM}reasoning/k2_horizon_reasoning_parser.py"
KIMI_3 = f"{SGLANG}function_call/kimik3_format.py"
INKLING = f"{SGLANG}parser/inkling_tokenizer.py"
MUSE = f"{SGLANG}function_call/muse_glimmer_detector.py"
HUNYUAN = f"{SGLANG}function_call/hunyuan_detector.py"
CLIENTS = "seen in clients' code; no report found"

THOUGHT_MARKS: Sequence[Mark] = (
    Mark("<think>", "Qwen, DeepSeek, GLM, Kimi K2, MiniMax and others", REASONING, "</think>"),
    Mark("<thinking>", "models that are told to", OPEN_WEBUI, "</thinking>"),
    Mark("<thought>", "EXAONE Deep, Gemini", OPEN_WEBUI, "</thought>"),
    Mark("<reason>", "models that are told to", OPEN_WEBUI, "</reason>"),
    Mark("<reasoning>", "models that are told to", OPEN_WEBUI, "</reasoning>"),
    Mark("<reflection>", "Reflection", "the card of mattshumer/Reflection-Llama-3.1-70B", "</reflection>"),
    Mark("<antThinking>", "Claude 3", "openclaw/openclaw#688", "</antThinking>"),
    Mark("<seed:think>", "Seed-OSS", f"{VLLM}reasoning/seedoss_reasoning_parser.py", "</seed:think>"),
    Mark("<mm:think>", "MiniMax M3", REASONING, "</mm:think>"),
    Mark("<ifm|think>", "K2 Horizon", HORIZON, "</ifm|think>"),
    Mark("<ifm|think_fast>", "K2 Horizon", HORIZON, "</ifm|think_fast>"),
    Mark("<ifm|think_faster>", "K2 Horizon", HORIZON, "</ifm|think_faster>"),
    Mark("<think:opensource>", "Hunyuan 3", HUNYUAN, "</think:opensource>"),
    Mark("<think:6124c78e>", "Hunyuan 3", CLIENTS, "</think:6124c78e>"),
    Mark("[THINK]", "Magistral, Mistral Small 4", REASONING, "[/THINK]"),
    Mark("◁think▷", "Kimi VL", REASONING, "◁/think▷"),
    Mark("<|begin_of_thought|>", "OpenThinker", OPEN_WEBUI, "<|end_of_thought|>"),
    Mark("<|START_THINKING|>", "Command", COMMAND, "<|END_THINKING|>"),
    Mark("<|inner_prefix|>", "Apertus", REASONING, "<|inner_suffix|>"),
    Mark("<unused94>", "MedGemma", "ollama/ollama#15754", "<unused95>"),
    Mark("<|channel>thought", "Gemma 4", REASONING, "<channel|>"),
    Mark("<|plamo:begin_think:plamo|>", "PLaMo 3", f"{VLLM}parser/plamo3.py", "<|plamo:end_think:plamo|>"),
    Mark("<|open|>think<|sep|>", "Kimi K3", KIMI_3, "<|close|>think<|sep|>"),
    Mark("<|content_thinking|>", "Inkling", INKLING, "<|end_message|>"),
    Mark("<|message_model|><|content_thinking|>", "Inkling", INKLING, "<|end_message|>"),
    Mark("to=self<|message|>", "Muse Glimmer", MUSE, "<|eom|>"),
    Mark("<|start|>assistant to=self<|message|>", "Muse Glimmer", MUSE, "<|eom|>"),
    Mark("<|channel|>analysis<|message|>", "gpt-oss", HARMONY, "<|end|>"),
    Mark("<|channel|>commentary<|message|>", "gpt-oss", HARMONY, "<|end|>"),
    Mark("<|start|>assistant<|channel|>analysis<|message|>", "gpt-oss", HARMONY, "<|end|>"),
    Mark("<|start|>assistant<|channel|>commentary<|message|>", "gpt-oss", HARMONY, "<|end|>"),
)
ANSWER_MARKS: Sequence[Mark] = (
    Mark("<|channel|>final<|message|>", "gpt-oss", HARMONY, "<|return|>"),
    Mark("<|start|>assistant<|channel|>final<|message|>", "gpt-oss", HARMONY, "<|return|>"),
    Mark("<|START_RESPONSE|>", "Command", COMMAND, "<|END_RESPONSE|>"),
    Mark("<|begin_of_solution|>", "OpenThinker", OPEN_WEBUI, "<|end_of_solution|>"),
    Mark("<|open|>response<|sep|>", "Kimi K3", KIMI_3, "<|close|>response<|sep|>"),
    Mark("<|open|>response<|sep|>", "Kimi K3", KIMI_3, "<|close|>message<|sep|>"),
    Mark("<|content_text|>", "Inkling", INKLING, "<|end_message|>"),
    Mark("<|message_model|><|content_text|>", "Inkling", INKLING, "<|content_model_end_sampling|>"),
    Mark("to=user<|message|>", "Muse Glimmer", MUSE, "<|eot|>"),
    Mark("<|start|>assistant to=user<|message|>", "Muse Glimmer", MUSE, "<|eot|>"),
)
CALL_MARKS: Sequence[Mark] = (
    Mark("<tool_call>", "Hermes, Qwen, GLM and others", f"{VLLM}tool_parsers/hermes_tool_parser.py"),
    Mark("<tool_calls>", "Hunyuan, MiniMax M1", "MiniMax-AI/MiniMax-M2#14"),
    Mark("<tool_call:opensource>", "Hunyuan 3", HUNYUAN),
    Mark("<tool_calls:opensource>", "Hunyuan 3", HUNYUAN),
    Mark("<toolcall>", "Nemotron", "ollama/ollama#8287"),
    Mark("<tool_use>", "models that are told to", CLIENTS),
    Mark("<tool_code>", "Gemini, Gemma 3", CLIENTS),
    Mark("<function_call>", "models that are told to", "openclaw/openclaw, docs, sessions_history"),
    Mark("<function_calls>", "models that are told to", "openclaw/openclaw, docs, sessions_history"),
    Mark("<function=", "Qwen Coder, Llama 3.1", f"{VLLM}tool_parsers/qwen3coder_tool_parser.py"),
    Mark('<invoke name="', "Claude, MiniMax", "anthropics/claude-code#69529"),
    Mark("<xai:function_call", "Grok", "anomalyco/opencode#2288"),
    Mark("<|tool_call|>", "Granite 3", f"{VLLM}tool_parsers/granite_tool_parser.py"),
    Mark("<|tool_call>", "Gemma 4", f"{VLLM}tool_parsers/gemma4_tool_parser.py"),
    Mark("<|tool_call_start|>", "LFM2", f"{VLLM}tool_parsers/lfm2_tool_parser.py"),
    Mark("<|tool_calls_section_begin|>", "Kimi K2", REASONING),
    Mark("<｜tool▁calls▁begin｜>", "DeepSeek V3", f"{SGLANG}function_call/deepseekv3_detector.py"),
    Mark("<|tool▁calls▁begin|>", "DeepSeek through Ollama", CLIENTS),
    Mark("<｜tool_calls_begin｜>", "Step 3", f"{SGLANG}function_call/step3_detector.py"),
    Mark("<｜DSML｜function_calls>", "DeepSeek V3.2", f"{SGLANG}function_call/deepseekv32_detector.py"),
    Mark("<|DSML|tool_calls>", "DeepSeek through gateways", CLIENTS),
    Mark("<｜GCML｜tool_calls>", "GigaChat 3.5", f"{VLLM}tool_parsers/gigachat35_tool_parser.py"),
    Mark("<|function_call|>", "GigaChat 3", f"{VLLM}tool_parsers/gigachat3_tool_parser.py"),
    Mark("function call<|role_sep|>", "GigaChat 3", f"{VLLM}tool_parsers/gigachat3_tool_parser.py"),
    Mark("[TOOL_CALL]", "MiniMax M2.7", "NousResearch/hermes-agent#35935"),
    Mark("[TOOL_CALLS]", "Mistral", f"{VLLM}tool_parsers/mistral_tool_parser.py"),
    Mark("<|python_tag|>", "Llama 3.1", f"{VLLM}tool_parsers/llama_tool_parser.py"),
    Mark("<|python_start|>", "Llama 4", f"{VLLM}tool_parsers/llama4_pythonic_tool_parser.py"),
    Mark("<|action_start|>", "InternLM 2", f"{VLLM}tool_parsers/internlm2_tool_parser.py"),
    Mark("<|START_ACTION|>", "Command", f"{SGLANG}function_call/cohere_command4_detector.py"),
    Mark("<|tools_prefix|>", "Apertus", REASONING),
    Mark("<minimax:tool_call>", "MiniMax M2", "earendil-works/pi#368"),
    Mark("<seed:tool_call>", "Seed-OSS", f"{VLLM}tool_parsers/seed_oss_tool_parser.py"),
    Mark("<longcat_tool_call>", "LongCat", f"{VLLM}tool_parsers/longcat_tool_parser.py"),
    Mark("<start_function_call>", "FunctionGemma", f"{VLLM}tool_parsers/functiongemma_tool_parser.py"),
    Mark("<dots_function_call>", "dots", f"{SGLANG}function_call/dots_detector.py"),
    Mark("<atem:function_calls>", "Muse Glimmer", MUSE),
    Mark("<ifm|tool_calls>", "K2 Horizon", HORIZON),
    Mark("<|plamo:begin_tool_requests:plamo|>", "PLaMo 3", f"{VLLM}parser/plamo3.py"),
    Mark("<|open|>tools<|sep|>", "Kimi K3", KIMI_3),
    Mark("<|open|>call ", "Kimi K3", KIMI_3),
    Mark("<|content_invoke_tool_json|>", "Inkling", INKLING),
    Mark("functools[", "Phi-4 mini", f"{VLLM}tool_parsers/phi4mini_tool_parser.py"),
    Mark("<|channel|>commentary to=", "gpt-oss", HARMONY),
    Mark("<|start|>assistant to=", "gpt-oss", HARMONY),
    Mark("to=functions.", "gpt-5", "NousResearch/hermes-agent#15347"),
)
