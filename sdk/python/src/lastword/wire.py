# The shapes of the OpenAPI document, made by datamodel-code-generator. Not to be edited.

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict


class AgentGrant(TypedDict, closed=True):
    cost_usd: NotRequired[float]
    tokens: NotRequired[int]


class AgentPatch(TypedDict, closed=True):
    actions: NotRequired[list[str] | None]
    display_name: NotRequired[str | None]
    groups: NotRequired[list[str] | None]
    limits: NotRequired[
        dict[
            Literal[
                'pair_messages_max',
                'sender_messages_max',
                'roots_per_hour_max',
                'agent_turns_max',
                'ack_ms',
                'agent_day_tokens_max',
                'agent_day_cost_microusd_max',
            ],
            int,
        ]
    ]
    turns_max: NotRequired[int | None]


class AgentToken(TypedDict):
    expires_at: NotRequired[str | None]
    incarnation: int
    name: str
    token: str


AnswerStatus: TypeAlias = Literal[
    'completed', 'partial', 'rejected', 'failed', 'timed_out', 'exhausted', 'cancelled'
]


ApprovalState: TypeAlias = Literal[
    'pending', 'approved', 'rejected', 'ignored', 'expired', 'used', 'withdrawn'
]


Arguments: TypeAlias = Any


ClaimMode: TypeAlias = Literal['exclusive', 'shared']


class ClaimView(TypedDict):
    agent: str
    expires_at: str
    fence: int
    id: str
    mode: ClaimMode
    ref: NotRequired[str | None]
    request_id: NotRequired[str | None]
    resource: str
    works_since: NotRequired[str | None]


class ClaimViewPage(TypedDict):
    behind: NotRequired[int]
    items: list[ClaimView]
    next: NotRequired[str]


ClockState: TypeAlias = Literal['in_step', 'catching_up', 'waiting', 'half_speed']


class ClockView(TypedDict):
    broker: str
    difference_ms: int
    note: NotRequired[str | None]
    state: ClockState
    wall: str


Code: TypeAlias = Literal[
    'malformed_header',
    'malformed',
    'unauthenticated',
    'forbidden',
    'from_mismatch',
    'depth_mismatch',
    'unknown_recipient',
    'self_send',
    'not_addressee',
    'reply_not_expected',
    'passive_reply',
    'cycle',
    'ref_in_use',
    'ref_conflict',
    'ref_required',
    'depth_cap',
    'hop_cap',
    'task_requests',
    'root_allowance',
    'pair_rate',
    'sender_rate',
    'fan_out',
    'grant_messages',
    'grant_turns',
    'grant_agents',
    'grant_expired',
    'budget',
    'turns_soft',
    'turns_hard',
    'paused',
    'latched',
    'stopped',
    'unknown_request',
    'already_settled',
    'mutual_wait',
    'saturated',
    'too_large',
    'turn_closed',
    'lease_lost',
    'turn_required',
    'idempotency_conflict',
    'name_taken',
    'approval_used',
    'approval_expired',
    'approver_not_allowed',
    'digest_mismatch',
    'escalations_open',
    'approvals_open',
    'not_approved',
    'claim_held',
    'not_decided',
    'unattended',
    'unanswered',
    'task_questions',
    'caused_by_refused',
    'refused_too_often',
    'turns_open',
    'disk_low',
    'epoch_over',
    'quota_bytes',
    'auth_rate',
    'archived',
    'no_progress',
    'log_gone',
]


class Counters(TypedDict):
    agent_messages: int
    deepest: int
    messages: int
    open_tasks: int


Decision: TypeAlias = Literal[
    'approve', 'reject', 'respond', 'ignore', 'edit', 'expire'
]


DeliveryState: TypeAlias = Literal['queued', 'delivered', 'parked', 'settled', 'noted']


class Distance(TypedDict):
    current: int
    estimated: NotRequired[bool]
    left: int
    limit: int
    name: str


EndReason: TypeAlias = Literal[
    'answered',
    'empty',
    'not_acknowledged',
    'lease_lost',
    'deadline',
    'grant_expired',
    'nobody_left',
    'cancelled',
    'asker_ended',
    'stopped',
    'recipient_gone',
    'unanswered',
]


class EscalationAnswer(TypedDict, closed=True):
    answer: NotRequired[str]
    lift: NotRequired[str | None]


EscalationCause: TypeAlias = Literal['asked', 'timed_out', 'no_progress']


EscalationState: TypeAlias = Literal['open', 'answered', 'withdrawn', 'expired']


ExchangeVerdict: TypeAlias = Literal['warned', 'held', 'would_warn', 'would_hold']


class Extend(TypedDict, closed=True):
    agents: NotRequired[int]
    cost_usd: NotRequired[float]
    grant: NotRequired[str | None]
    messages: NotRequired[int]
    requests: NotRequired[int]
    rounds: NotRequired[int]
    time_ms: NotRequired[int]
    tokens: NotRequired[int]
    turns: NotRequired[int]


class FailedNotification(TypedDict):
    channel: str
    failed_at: str
    id: str
    items: list[str]
    reason: str


class FailedNotificationPage(TypedDict):
    behind: NotRequired[int]
    items: list[FailedNotification]
    next: NotRequired[str]


FinishStatus: TypeAlias = Literal[
    'completed', 'partial', 'rejected', 'failed', 'waiting', 'held'
]


class Finished(TypedDict):
    answer: NotRequired[str | None]
    open: bool
    turn: NotRequired[str | None]
    warning: NotRequired[str | None]


GrantKind: TypeAlias = Literal['message', 'typed', 'schedule', 'root']


class GrantView(TypedDict):
    can_still_cause: int
    expires_at: str
    giver: str
    id: str
    kind: NotRequired[GrantKind]
    latched: NotRequired[str | None]
    limits: list[Distance]
    open: bool
    trace: NotRequired[str | None]
    trace_url: NotRequired[str | None]


class HeldCall(TypedDict, closed=True):
    arguments: NotRequired[Arguments]
    reason: NotRequired[str | None]
    tool: str


class HistoryItem(TypedDict):
    agent: str
    at: str
    attempt: NotRequired[int | None]
    event: str


class Hold(TypedDict):
    incident: NotRequired[str | None]
    on: str
    scope: str
    state: str


class IdToken(TypedDict, closed=True):
    id_token: str


class IncidentView(TypedDict):
    at: str
    code: Code
    current: int
    id: str
    is_cost: NotRequired[bool]
    lifted_at: NotRequired[str | None]
    lifted_by: NotRequired[str | None]
    limit: int
    on: str
    parked: list[str]
    ref: NotRequired[str | None]
    scope: str


class IncidentViewPage(TypedDict):
    behind: NotRequired[int]
    items: list[IncidentView]
    next: NotRequired[str]


Kind: TypeAlias = Literal['agent', 'human']


class LiftStep(TypedDict):
    call: str
    cli: str
    text: str


class LiftView(TypedDict):
    chosen: NotRequired[bool]
    grant: NotRequired[Any]
    id: str
    text: str


class LimitView(TypedDict):
    default: int
    meaning: str
    name: str
    rule: str
    value: int


MessageType: TypeAlias = Literal[
    'request', 'response', 'status', 'alert', 'info', 'broadcast'
]


class ModelUsage(TypedDict, closed=True):
    cost_usd: NotRequired[float | None]
    model: str
    tokens: int
    weighted_tokens: NotRequired[int | None]


class MoveToArchive(TypedDict, closed=True):
    above_bytes: NotRequired[int | None]
    after_ms: NotRequired[int | None]


class NewClaim(TypedDict, closed=True):
    mode: NotRequired[ClaimMode]
    resource: str
    ttl_ms: NotRequired[int | None]
    wait_ms: NotRequired[int | None]


class NewEscalation(TypedDict, closed=True):
    message: str
    options: NotRequired[list[str]]
    ref: NotRequired[str | None]


class NewRoom(TypedDict, closed=True):
    members: NotRequired[list[str]]
    name: str


class NewSchedule(TypedDict, closed=True):
    body: str
    cron: str
    name: str
    ref: NotRequired[str | None]
    time_zone: NotRequired[str | None]
    to: str


NoticeKind: TypeAlias = Literal[
    'status', 'info', 'alert', 'broadcast', 'late', 'warning'
]


Outcome: TypeAlias = Literal[
    'completed', 'partial', 'failed', 'timed_out', 'cancelled', 'stopped'
]


Mention: TypeAlias = str


class Post(TypedDict, closed=True):
    body: str
    mentions: NotRequired[list[Mention] | None]
    ref: NotRequired[str | None]


Priority: TypeAlias = Literal['urgent', 'high', 'normal', 'low']


class Problem(TypedDict):
    code: Code
    current: NotRequired[int | None]
    detail: str
    hint: str
    is_cost: NotRequired[bool]
    lift: NotRequired[LiftStep | None]
    limit: NotRequired[int | None]
    record: NotRequired[str | None]
    retry_after_ms: NotRequired[int | None]
    rule: str
    status: int
    title: str
    type: str


Profile: TypeAlias = Literal['strict', 'long']


class Prompt(TypedDict, closed=True):
    typed: bool


class Receipt(TypedDict):
    delivery_state: DeliveryState
    id: str
    request_id: NotRequired[str | None]
    seq: int
    warning: NotRequired[str | None]


class ReceiptPage(TypedDict):
    behind: NotRequired[int]
    items: list[Receipt]
    next: NotRequired[str]


RefusedSend = TypedDict(
    'RefusedSend',
    {
        'from': str,
        'problem': Problem,
        'ref': NotRequired[str | None],
        'to': NotRequired[str | None],
        'turn': NotRequired[str | None],
        'type': NotRequired[MessageType | None],
    },
)


class Renewed(TypedDict):
    deadline: str
    end: NotRequired[Code | None]
    finish: NotRequired[Code | None]


class Repetition(TypedDict):
    id: str
    of: int
    same: bool
    units: int


class Replay(TypedDict, closed=True):
    after: int
    channel: str


RequestState: TypeAlias = Literal[
    'idle', 'request_sent', 'waiting', 'response_received'
]


class Resent(TypedDict):
    channel: str
    id: str
    items: int
    problem: NotRequired[str | None]
    settled: int


Role: TypeAlias = Literal['owner', 'operator', 'approver', 'viewer']


class RoomView(TypedDict):
    agent_messages: int
    id: str
    latched: bool
    members: list[str]
    messages: int
    name: str


class RoomViewPage(TypedDict):
    behind: NotRequired[int]
    items: list[RoomView]
    next: NotRequired[str]


Ruling: TypeAlias = Literal['ask', 'allow', 'deny']


Running: TypeAlias = Literal['active', 'paused', 'stopped']


class ScheduleView(TypedDict):
    body: str
    by: str
    cron: str
    last_at: NotRequired[str | None]
    name: str
    next_at: str
    open: bool
    ref: str
    skipped: NotRequired[Code | None]
    skipped_at: NotRequired[str | None]
    ticks: int
    time_zone: str
    to: str


class ScheduleViewPage(TypedDict):
    behind: NotRequired[int]
    items: list[ScheduleView]
    next: NotRequired[str]


Scope: TypeAlias = Literal['read', 'send', 'work', 'ask', 'decide', 'control', 'manage']


class SegmentView(TypedDict):
    bytes: NotRequired[int | None]
    file: str
    first: int
    hash: str
    last: int
    until: str


class SignInLink(TypedDict):
    expires_at: str
    path: str


class SignInProvider(TypedDict):
    client_id: str
    issuer: str


class SignedIn(TypedDict):
    expires_at: str
    name: str
    role: Role
    token: str


StallCause: TypeAlias = Literal['dry', 'stuck']


class StepResult(TypedDict, closed=True):
    key: str
    result: Any


StoredMessage = TypedDict(
    'StoredMessage',
    {
        'acknowledged': NotRequired[bool],
        'action': NotRequired[str | None],
        'body': str,
        'cause': NotRequired[str | None],
        'completed': NotRequired[list[str]],
        'created_at': str,
        'deadline': NotRequired[str | None],
        'delivery_state': DeliveryState,
        'depth': int,
        'escalation': NotRequired[str | None],
        'eta_ms': NotRequired[int | None],
        'failed': NotRequired[list[str]],
        'from': str,
        'from_human': NotRequired[bool],
        'grant': NotRequired[str | None],
        'hops': int,
        'id': str,
        'in_reply_to': NotRequired[str | None],
        'metadata': NotRequired[Any],
        'parent_ref': NotRequired[str | None],
        'payload': NotRequired[Any],
        'priority': NotRequired[Priority | None],
        'question': NotRequired[str | None],
        'reason': NotRequired[str | None],
        'ref': str,
        'request_id': NotRequired[str | None],
        'room': NotRequired[str | None],
        'seq': int,
        'status': NotRequired[AnswerStatus | None],
        'stopped': NotRequired[bool],
        'to': str,
        'type': MessageType,
        'warning': NotRequired[str | None],
    },
)


class StoredMessagePage(TypedDict):
    behind: NotRequired[int]
    items: list[StoredMessage]
    next: NotRequired[str]


Subject: TypeAlias = Literal[
    'message',
    'refusal',
    'observed',
    'approval',
    'escalation',
    'incident',
    'grant',
    'conversation',
]


ToItem: TypeAlias = str


To: TypeAlias = str | list[ToItem]


class TokenTerms(TypedDict, closed=True):
    expires_in_ms: NotRequired[int | None]
    overlap_ms: NotRequired[int]


class TurnView(TypedDict):
    attempt: int
    deadline: str
    id: str
    steps: NotRequired[list[StepResult]]
    token: str
    traceparent: NotRequired[str | None]


class Unavailable(TypedDict, closed=True):
    reason: str


class Usage(TypedDict, closed=True):
    cache_read_tokens: NotRequired[int]
    cache_write_tokens: NotRequired[int]
    cost_usd: NotRequired[float | None]
    estimated: NotRequired[bool]
    input_tokens: NotRequired[int]
    models: NotRequired[list[ModelUsage]]
    output_tokens: NotRequired[int]
    weighted_tokens: NotRequired[int | None]


class UseApproval(TypedDict, closed=True):
    arguments: NotRequired[Arguments]
    tool: str


class ApprovalRuleView(TypedDict):
    agents: list[str]
    call: str
    decision: Ruling
    tier: NotRequired[str | None]
    timeout_ms: int
    who: list[str]


class ApprovalView(TypedDict):
    agent: str
    arguments: Arguments
    by: NotRequired[str | None]
    by_kind: NotRequired[Kind | None]
    comment: NotRequired[str | None]
    created_at: str
    decided_at: NotRequired[str | None]
    decision: NotRequired[Decision | None]
    digest: str
    ended: NotRequired[EndReason | None]
    expires_at: str
    id: str
    lease_until: NotRequired[str | None]
    policy: NotRequired[str | None]
    reason: NotRequired[str | None]
    ref: NotRequired[str | None]
    request_id: NotRequired[str | None]
    requested: NotRequired[Arguments]
    state: ApprovalState
    tier: NotRequired[str | None]
    tool: str


class ApprovalViewPage(TypedDict):
    behind: NotRequired[int]
    items: list[ApprovalView]
    next: NotRequired[str]


class ArchivesView(TypedDict):
    above_bytes: NotRequired[int | None]
    after_ms: NotRequired[int | None]
    bytes: int
    bytes_per_day: NotRequired[int | None]
    first: int
    last: int
    segments: list[SegmentView]
    since: NotRequired[str | None]


CausalLink = TypedDict(
    'CausalLink',
    {
        'depth': int,
        'from': str,
        'hops': int,
        'id': str,
        'ref': str,
        'request_id': NotRequired[str | None],
        'to': str,
        'type': MessageType,
    },
)


class ConversationSummary(TypedDict):
    cost_microusd: NotRequired[int]
    counters: Counters
    last_at: str
    latched: bool
    nearest: NotRequired[Distance | None]
    opened_at: str
    opener: str
    outcome: NotRequired[Outcome | None]
    parent_ref: NotRequired[str | None]
    ref: str
    state: Running
    subject: NotRequired[str]
    tokens: NotRequired[int]
    waits_for_human: NotRequired[bool]
    waits_for_user: NotRequired[list[str]]


class ConversationSummaryPage(TypedDict):
    behind: NotRequired[int]
    items: list[ConversationSummary]
    next: NotRequired[str]


class DecideApproval(TypedDict, closed=True):
    comment: NotRequired[str | None]
    decision: Decision
    digest: NotRequired[str | None]
    input: NotRequired[Arguments | None]


class EscalationView(TypedDict):
    agent: str
    answer: NotRequired[str | None]
    answered_at: NotRequired[str | None]
    answered_by: NotRequired[str | None]
    cause: EscalationCause
    created_at: str
    id: str
    lifts: NotRequired[list[LiftView]]
    limit: NotRequired[str | None]
    message: str
    options: list[str]
    ref: str
    request_id: NotRequired[str | None]
    seq: int
    state: EscalationState
    warning: NotRequired[str | None]


class EscalationViewPage(TypedDict):
    behind: NotRequired[int]
    items: list[EscalationView]
    next: NotRequired[str]


class Event(TypedDict):
    agent: NotRequired[str | None]
    at: str
    data: NotRequired[dict[str, Any]]
    message: NotRequired[StoredMessage | None]
    ref: NotRequired[str | None]
    request_id: NotRequired[str | None]
    seq: int
    type: str


ExchangeLine = TypedDict(
    'ExchangeLine',
    {
        'context_tokens': int,
        'dry_millis': int,
        'excerpt': NotRequired[str | None],
        'from': str,
        'id': str,
        'new_units': int,
        'reason': NotRequired[StallCause | None],
        'repeats': NotRequired[Repetition | None],
        'to': str,
        'verdict': NotRequired[ExchangeVerdict | None],
    },
)


class ExchangeView(TypedDict):
    asker: str
    delegate: str
    dry_millis: int
    hold_at_millis: int
    lines: list[ExchangeLine]
    messages: int
    new_units: int
    omitted: int
    read_again_tokens: int
    summary: str
    unread: int
    warn_at_millis: int


class Finish(TypedDict, closed=True):
    answer: NotRequired[str]
    completed: NotRequired[list[str]]
    failed: NotRequired[list[str]]
    payload: NotRequired[Any]
    reason: NotRequired[str | None]
    status: NotRequired[FinishStatus | None]
    usage: NotRequired[Usage | None]


class HeldBy(TypedDict):
    lift: LiftStep
    text: str


class HumanPatch(TypedDict, closed=True):
    role: Role


class LimitsView(TypedDict):
    approvals: NotRequired[list[ApprovalRuleView]]
    bound_messages: int
    guards: dict[str, str]
    items: list[LimitView]
    profile: NotRequired[Profile]


class Metadata(TypedDict):
    deadline_ms: NotRequired[int | None]
    priority: NotRequired[Priority | None]
    timeout_ms: NotRequired[int | None]


class MovedToArchive(TypedDict):
    held_back_at: NotRequired[int | None]
    segments: list[SegmentView]


class NarrowedToken(TypedDict):
    expires_at: str
    name: str
    scopes: list[Scope]
    token: str


class NewAgent(TypedDict, closed=True):
    actions: NotRequired[list[str]]
    display_name: NotRequired[str | None]
    groups: NotRequired[list[str]]
    kind: NotRequired[Kind]
    name: str
    role: NotRequired[Role | None]
    turns_max: NotRequired[int]


class NewHuman(TypedDict, closed=True):
    name: str
    role: Role


class NewToken(TypedDict, closed=True):
    expires_in_ms: int
    scopes: list[Scope]


Notice = TypedDict(
    'Notice',
    {
        'body': str,
        'created_at': str,
        'eta_ms': NotRequired[int | None],
        'from': str,
        'from_human': NotRequired[bool],
        'id': str,
        'payload': NotRequired[Any],
        'ref': NotRequired[str | None],
        'request_id': NotRequired[str | None],
        'type': NoticeKind,
    },
)


class Posted(TypedDict):
    items: list[StoredMessage]
    room: str


class Progress(TypedDict, closed=True):
    eta_ms: NotRequired[int | None]
    new_session: NotRequired[bool]
    note: NotRequired[str]
    outside: NotRequired[bool]
    step: NotRequired[StepResult | None]
    usage: NotRequired[Usage | None]
    waits_for_user: NotRequired[bool]


RequestView = TypedDict(
    'RequestView',
    {
        'attempts': int,
        'deadline': NotRequired[str | None],
        'from': str,
        'held_by': NotRequired[list[HeldBy]],
        'history': list[HistoryItem],
        'message': str,
        'priority': Priority,
        'queue_position': NotRequired[int | None],
        'ref': str,
        'request_id': str,
        'response': NotRequired[StoredMessage | None],
        'state': RequestState,
        'status': NotRequired[AnswerStatus | None],
        'to': str,
        'tried': list[str],
    },
)


class SentMessage(StoredMessage):
    response: NotRequired[StoredMessage]


class SentReceipt(Receipt):
    response: NotRequired[StoredMessage]


class TreeNode(TypedDict):
    children: list[TreeNode]
    duration_ms: NotRequired[int | None]
    estimated: NotRequired[bool]
    message: StoredMessage
    questions: NotRequired[list[EscalationView]]
    refusals: NotRequired[list[RefusedSend]]
    tokens: NotRequired[int]
    turns: NotRequired[int]


class AgentView(TypedDict):
    actions: list[str]
    clients: NotRequired[int]
    connected: bool
    cost_today_microusd: NotRequired[int]
    display_name: NotRequired[str | None]
    groups: list[str]
    held_by: NotRequired[list[HeldBy]]
    incarnation: int
    kind: Kind
    limits: NotRequired[dict[str, int]]
    name: str
    notices: int
    queued: int
    rests_until: NotRequired[str | None]
    role: NotRequired[Role | None]
    state: Running
    tokens_estimated: NotRequired[bool]
    tokens_today: int
    turns: list[str]
    turns_max: int
    unavailable: NotRequired[str | None]
    waits_for_user: NotRequired[bool]
    windows: NotRequired[list[Distance]]


class AgentViewPage(TypedDict):
    behind: NotRequired[int]
    items: list[AgentView]
    next: NotRequired[str]


class ConversationView(ConversationSummary):
    behind: NotRequired[int]
    claims: NotRequired[list[ClaimView]]
    grants: list[GrantView]
    held_by: NotRequired[list[HeldBy]]
    left_out: NotRequired[int]
    limits: list[Distance]
    participants: list[str]
    questions: NotRequired[list[EscalationView]]
    refusals: NotRequired[list[RefusedSend]]
    tree: list[TreeNode]


class Delivery(TypedDict):
    delivery: str
    message: StoredMessage
    notices: list[Notice]
    turn: NotRequired[TurnView | None]


Envelope = TypedDict(
    'Envelope',
    {
        'acknowledged': NotRequired[bool],
        'action': NotRequired[str | None],
        'body': NotRequired[str],
        'caused_by': NotRequired[str | None],
        'deadline_ms': NotRequired[int | None],
        'depth': NotRequired[int | None],
        'eta_ms': NotRequired[int | None],
        'from': NotRequired[str | None],
        'in_reply_to': NotRequired[str | None],
        'metadata': NotRequired[Metadata],
        'payload': NotRequired[Any],
        'priority': NotRequired[Priority | None],
        'ref': NotRequired[str | None],
        'request_id': NotRequired[str | None],
        'status': NotRequired[FinishStatus | None],
        'timeout_ms': NotRequired[int | None],
        'to': NotRequired[To | None],
        'type': MessageType,
    },
)


class Explanation(TypedDict):
    approval: NotRequired[ApprovalView | None]
    at: str
    chain: list[CausalLink]
    conversation: NotRequired[ConversationSummary | None]
    deciders: NotRequired[list[str]]
    escalation: NotRequired[EscalationView | None]
    exchange: NotRequired[ExchangeView | None]
    grant: NotRequired[GrantView | None]
    held_by: NotRequired[list[HeldBy]]
    holds: NotRequired[list[Hold]]
    id: str
    incident: NotRequired[IncidentView | None]
    limits: NotRequired[list[Distance]]
    message: NotRequired[StoredMessage | None]
    refused: NotRequired[RefusedSend | None]
    subject: Subject


class Extended(TypedDict):
    held_by: list[HeldBy]


Sent: TypeAlias = (
    SentMessage
    | SentReceipt
    | StoredMessagePage
    | ReceiptPage
    | Finished
    | EscalationView
)


class MessageOutcome(TypedDict):
    body: NotRequired[Sent]
    problem: NotRequired[Problem]
    status: int


class Outcomes(TypedDict):
    items: list[MessageOutcome]
