import type { JsonObject } from '../../../kit/json.ts';
import type { EventBody } from '../../socket/types.ts';
import type { ProviderEvent } from '../provider/provider.ts';
import type { ResultDelivery } from '../settings.ts';
import { NO_USAGE, type Usage } from '../usage.ts';

/**
 * The realtime agent as a state machine (contract 06 §6 to §8): `reduce(state, event)` returns the next state and the
 * effects in order. It reads no clock and has no side effects: time comes with the events, and timers are effects. A `State`
 * is immutable; every step returns a new one.
 *
 * Region T, which socket owns the session, is `ResumableSession` with `AGENT_RULES`.
 */
export interface State {
  readonly config: AgentConfig;
  /**
   * `closing` while a last answer is rendered after the provider was lost for good. `outliving`: the client's socket has
   * closed, and runs continue, whose answers go to the phone as messages.
   */
  phase: 'open' | 'closing' | 'outliving' | 'closed';
  isAttached: boolean;
  /** When the socket was lost; null while there is one. */
  detachedAt: number | null;
  /** The agent's chat session, once known. */
  chatSessionId: string | null;
  /** True if that id came from outside, so that the agent may not know it (contract 06 §5.2). */
  isChatSessionExternal: boolean;
  link: Link;
  /** Usage that the provider has reported so far. */
  usage: Usage;
  turn: Turn;
  floor: Floor;
  delivery: Deliveries;
  run: Runs;
  /** Generation of each active timer. */
  timers: Readonly<Record<string, number>>;
  /** The last number given to a timer, a run, a delivery or a drain. */
  counter: number;
  /** The activity of the session as last reported to the socket. */
  reported: { isBusy: boolean; isAlive: boolean };
  /** The end of a session in phase `closing`. */
  ending: Ending | null;
}

/** Constant for a session. Durations are in milliseconds. */
export interface AgentConfig {
  sessionId: string;
  provider: string;
  model: string;
  voice: string;
  /** Hertz, of the audio that the provider sends. */
  sampleRate: number;
  eventLogPath: string;
  profile: string | null;
  chatSessionId: string | null;
  isFinalAnswerOnly: boolean;
  /** True if slow runs and long tools move to the background: `promotion_enabled` and mode `promote`. */
  promotes: boolean;
  promoteAfter: number;
  spokenHandoff: boolean;
  /** 0: progress is not spoken. */
  progressSpokenAfter: number;
  progressRepeat: number;
  resultDelivery: ResultDelivery;
  /** True if the provider has a primitive for exact text, whose response may lack a transcript. */
  speaksExactText: boolean;
  /** Lower-case parts of the names of slow tools. */
  longToolHints: readonly string[];
  resumeTtl: number;
  backgroundDetachedMax: number;
  backgroundRunMax: number;
  progressInterval: number;
  playbackDrain: number;
  runLead: number;
  floorWait: number;
  inputQuiet: number;
  deliveryConfirm: number;
  longToolQuickFinish: number;
  transcriptWait: number;
}

/** The connection to the provider (contract 06 §6.9). Times are those of the events. */
export interface Link {
  /** `asleep`: lost while idle, and dialled on demand. `waiting`: for the next attempt. */
  phase: 'up' | 'asleep' | 'dialling' | 'waiting';
  /** Attempts since the last completed turn. */
  tries: number;
  /** Time at which it was established. */
  upAt: number;
  /** Time at which it was first missed. */
  lostAt: number;
  /** Why it was lost, in words. */
  message: string;
  /** True if the provider ends the session soon. */
  isRenewalDue: boolean;
}

/** Region P: the user's speech, and the one response that the provider may have in flight. */
export interface Turn {
  input: 'idle' | 'listening' | 'awaiting_transcript';
  /** Committed utterances without a transcript. */
  awaiting: number;
  /** Bytes of audio since the last commit or clear. */
  uncommitted: number;
  lastChunkId: number;
  /** Bytes of audio in this session. */
  totalBytes: number;
  /** Time of the last microphone audio. */
  micAt: number | null;
  /** Playback position when the user began to speak. */
  playedBefore: number;
  /** True if the user has cut an answer or a run, and said nothing since. */
  isCut: boolean;
  active: ActiveResponse | null;
  /** At most one per kind. */
  queue: readonly ResponseRequest[];
  /** True if unrequested responses are dropped: from a delivery on until the next request. */
  isSuppressing: boolean;
  /** Requests that were cancelled before their response started, which may still start until `orphansUntil`. */
  orphans: number;
  orphansUntil: number;
  /** Ids of the last finished responses; later events of them are dropped. */
  ended: readonly string[];
  /** Ids of the last function calls, each of which is answered once. */
  calls: readonly string[];
}

export type RequestKind = 'user' | 'handoff' | 'tool_followup' | 'delivery';

export interface ResponseRequest {
  kind: RequestKind;
  prompt: Prompt | null;
}

/** Content of a response, besides the provider's own instructions. The actor words it. */
export type Prompt =
  /** An answer that the user already has, although the provider did not speak it (contract 06 §7.3). */
  | { type: 'delivered'; request: string; answer: string }
  /** The task continues in the background. */
  | { type: 'handoff' }
  /** A queued task starts. */
  | { type: 'transition' }
  | { type: 'delivery'; mode: ResultDelivery; result: Result }
  /** The rest of an answer, which ended with its connection after `said`. */
  | { type: 'rest'; said: string; result?: Result }
  /** The user's last words were lost with the connection: they are asked to say them again. */
  | { type: 'repeat' };

export interface ActiveResponse {
  request: ResponseRequest;
  /** Null until the response has started. */
  id: string | null;
  /** Dropped completely: the provider started it unrequested while a delivery was due. */
  isDropped: boolean;
  /** True if it may be the response of a cancelled request, in which case it is held back until that is certain. */
  isSuspect: boolean;
  /** True once `voice.response.started` was sent. */
  isAnnounced: boolean;
  hasSpoken: boolean;
  /** True once all of its audio has arrived. */
  isSpoken: boolean;
  /** The end of its text. */
  said: string;
  hasCalls: boolean;
  /** Function calls of a suspect response. */
  heldCalls: readonly FunctionCall[];
  /** True if the provider refused to start it during the cancellation of another, after which it is requested again. */
  isRefused: boolean;
}

export interface FunctionCall {
  callId: string;
  name: string;
  /** Unchecked JSON text. */
  args: string;
  /** True if the response spoke before the call. */
  hasSpoken: boolean;
}

/** Region F: who speaks. */
export interface Floor {
  speaker: 'free' | 'provider' | 'relay_tts';
  /** Waits until the phone has played everything sent. */
  drains: readonly Drain[];
}

export interface Drain {
  id: number;
  callId: string;
  toolName: string;
  reason: 'pre_svc_ack' | 'tool_result_summary' | 'forced_summary';
}

/** The outcome of one run, to be delivered exactly once. */
export interface Result {
  runKey: number;
  runId: string;
  /** The user's request. */
  request: string;
  /** The authoritative answer, or for a failed run its error. */
  answer: string;
  isOk: boolean;
  isBackground: boolean;
  callId: string;
  toolCount: number;
  lastToolName: string | null;
  /** True if it was cut by noise once, and offered again. */
  isReoffered: boolean;
}

/** Region D: the delivery of results, one at a time. */
export interface Deliveries {
  current: Delivery | null;
  /** Queued results. */
  backlog: readonly Result[];
  /** For `svc.result.respeak`. */
  last: Result | null;
  /** The answer that was cut last; noise in place of a turn leaves it deliverable. */
  cut: { result: Result; at: number } | null;
  /** The answer that the provider spoke last. */
  spoken: Result | null;
  /** Delivered outside the provider's history, so that the next turn's request mentions it. */
  remembered: { request: string; answer: string } | null;
  /** Delivered while no socket could receive them. */
  unreceived: readonly Result[];
}

export interface Delivery {
  generation: number;
  result: Result;
  label: 'forced_summary' | 'fallback' | 'respeak';
  phase: 'waiting_floor' | 'held' | 'draining' | 'requested' | 'streaming' | 'fallback';
  /** The part that the provider has spoken. */
  text: string;
  hasAudio: boolean;
  /** Approximate bytes of the held-back events. */
  held: number;
  /** True if the provider called a function instead, and was asked again. */
  isRepeated: boolean;
  /** True if the delivery has waited long enough for the floor. */
  isFloorDue: boolean;
  /** True if anything came since the confirm timer was set. */
  hasProgress: boolean;
  /** True if the phone was connected when the whole text was sent. */
  isShown: boolean;
}

/** Region R: the run slot, its queue and the fast lane. */
export interface Runs {
  current: Run | null;
  queue: readonly Task[];
  /** A second task beside a background run, silent towards the client. */
  fast: FastRun | null;
  /** The chat session of the fast lane, once known. */
  fastSessionId: string | null;
  /** True if the queue continues although the previous result has not settled. */
  isQueueDue: boolean;
  /** The run that ended last, for `svc_get_status`. */
  last: RunFacts | null;
}

/** A task that the provider asked for with `svc_run_task`. */
export interface Task {
  callId: string;
  /** Id of the run until the agent assigns one. */
  localId: string;
  text: string;
  profile: string | null;
  sessionId: string | null;
}

/** Progress of a run. */
export interface RunFacts {
  runId: string;
  status: 'running' | 'waiting_for_confirmation' | 'completed' | 'cancelled' | 'error' | 'timeout';
  confirmationId: string | null;
  activeToolName: string | null;
  lastToolName: string | null;
  lastToolStatus: 'running' | 'done' | 'failed' | null;
  lastToolMessage: string;
  toolCount: number;
}

export interface Run extends RunFacts {
  key: number;
  task: Task;
  mode: 'foreground' | 'background';
  phase: 'draining' | 'lead' | 'foreground' | 'background';
  tier: 'foreground' | 'promoted' | 'durable';
  origin: 'provider_tool_call' | 'queued';
  /** True if the calling response spoke before the call. */
  hasCallerSpoken: boolean;
  startedAt: number;
  isDrafting: boolean;
  /** Latest message of the active tool. */
  progress: string | null;
  /** Number of `svc.run.started` events so far. */
  announced: number;
  /** `runId` is the agent's. */
  isNamed: boolean;
  /** The status that was spoken last, and when. */
  spokenStatus: string | null;
  spokenAt: number;
}

export interface FastRun {
  key: number;
  task: Task;
  toolCount: number;
  lastToolName: string | null;
}

/** The end of a session, with the error for its client. */
export interface Ending {
  code: number;
  reason: string;
  why: string;
  error?: EventBody;
  /** True if living runs continue without the client. */
  keepsRuns?: boolean;
}

/** The outcome of a function call, from which the actor makes the JSON of contract 06 §6.2. */
export type ToolOutcome =
  | { type: 'completed'; result: Result; isFast: boolean }
  | { type: 'failed'; error: string; runId: string }
  | { type: 'cancelled'; runId: string }
  | { type: 'promoted' }
  | { type: 'queued'; position: number }
  | { type: 'already_running'; runId: string }
  | { type: 'status'; facts: RunFacts | null; queue: readonly Task[] }
  | { type: 'cancel'; runId: string | null; hadRun: boolean }
  | { type: 'confirmed'; confirmationId: string }
  | { type: 'refused'; result: JsonObject };

/** A report of an `AgentUpstream` on a run (contract 06 §5.3). `answer` has a piece of the answer, `end` all of it. */
export type RunEvent =
  | { type: `svc.${string}` }
  | { type: 'answer'; text: string }
  | { type: 'end'; text: string }
  | { type: 'error'; message: string; code?: string }
  /** The relay is frozen; no more events follow (contract 09 §3). */
  | { type: 'frozen'; message: string };

/** The phone's playback of the audio sent. */
export interface Playback {
  /** Highest `audio_event_id` that it has reported; 0 for none. */
  played: number;
  /** True if the phone has played everything, as far as known. */
  isAllPlayed: boolean;
}

/** An event, at `at` (monotonic milliseconds). */
export type Event = { at: number } & (
  | {
      /** A message of the owner that the socket does not handle itself. */
      type: 'client';
      message: JsonObject;
      playback: Playback;
    }
  | { type: 'provider'; event: ProviderEvent; playback: Playback }
  /** The new connection to the provider is open, or failed. */
  | { type: 'dialled' }
  | { type: 'dialFailed'; message: string }
  /** The provider's socket accepted no more. */
  | { type: 'providerRefused'; what: 'toolResult' | 'request' }
  | { type: 'run'; key: number; event: RunEvent }
  | { type: 'rendered'; id: number; pcm: Uint8Array; sampleRate: number }
  /**
   * `done` has the members that a rendered `voice.response.done` adds. May come after `stopRender`, in which case it is
   * ignored.
   */
  | { type: 'renderEnded'; id: number; error?: string; done?: JsonObject }
  | { type: 'timer'; name: string; generation: number }
  | { type: 'attached' }
  | { type: 'detached' }
  /** The socket's side of the session has ended. */
  | { type: 'ended'; why: string }
);

export type ProviderCommand =
  | { type: 'audio'; pcm: Uint8Array; sampleRate: number }
  | { type: 'commit' }
  | { type: 'clear' }
  | { type: 'text'; text: string }
  | { type: 'cancel' }
  | { type: 'context'; role: 'assistant' | 'user'; text: string };

/** An action for the actor to perform. */
export type Effect =
  /** Publish an event. With `hold`, keep it until `release` or `discard` of the response with that id. */
  | { type: 'emit'; event: EventBody; hold?: string }
  | { type: 'audio'; audio: OutputAudio; hold?: string }
  | { type: 'release'; hold: string }
  | { type: 'discard'; hold: string }
  /** A marker for the event log only. */
  | { type: 'mark'; event: EventBody }
  | { type: 'provider'; command: ProviderCommand }
  /** Reconnect the provider, with the conversation so far; answered by `dialled` or `dialFailed`. */
  | { type: 'dial' }
  /** Drop the provider, or the attempt to connect it. */
  | { type: 'hangUp' }
  | { type: 'toolResult'; callId: string; toolName: string; outcome: ToolOutcome }
  | { type: 'request'; request: ResponseRequest }
  /**
   * Cut the provider's history to what was heard (contract 06 §6.6). Without `isCertain`, only if the phone can still be
   * playing.
   */
  | { type: 'truncate'; isCertain: boolean }
  | { type: 'startRun'; key: number; task: Task; sessionId: string | null; isExternal: boolean }
  /** The run's results are no longer wanted. */
  | { type: 'abortRun'; key: number }
  | { type: 'approve'; runId: string; confirmationId: string; answer: string }
  | { type: 'render'; id: number; text: string }
  | { type: 'stopRender'; id: number }
  | { type: 'setTimer'; name: string; generation: number; delay: number }
  | { type: 'clearTimer'; name: string; generation: number }
  /** True if a background run is alive, which the end of a socket does not end. */
  | { type: 'activity'; isBusy: boolean }
  /** Milliseconds for which the session waits for its phone. */
  | { type: 'resumeTtl'; ttl: number }
  /** Hand an unreceived answer to the phone-message service. */
  | { type: 'phoneMessage'; text: string; runId: string; chatSessionId: string | null }
  /** Close the session, its provider and its runs. Always the last effect. */
  | { type: 'close'; code: number; reason: string; why: string };

export interface OutputAudio {
  responseId: string;
  pcm: Uint8Array;
  sampleRate: number;
  /** The position of the audio in the provider's history; absent for rendered speech. */
  itemId?: string;
  contentIndex?: number;
  /** Further members of the event. */
  labels: JsonObject;
}

/** The state of a session whose provider is being connected. */
export function initialState(config: AgentConfig): State {
  return {
    config,
    phase: 'open',
    isAttached: false,
    detachedAt: null,
    chatSessionId: config.chatSessionId,
    isChatSessionExternal: config.chatSessionId !== null,
    usage: NO_USAGE,
    link: { phase: 'up', tries: 0, upAt: 0, lostAt: 0, message: '', isRenewalDue: false },
    turn: {
      input: 'idle',
      awaiting: 0,
      uncommitted: 0,
      lastChunkId: 0,
      totalBytes: 0,
      micAt: null,
      playedBefore: 0,
      isCut: false,
      active: null,
      queue: [],
      isSuppressing: false,
      orphans: 0,
      orphansUntil: 0,
      ended: [],
      calls: [],
    },
    floor: { speaker: 'free', drains: [] },
    delivery: {
      current: null,
      backlog: [],
      last: null,
      cut: null,
      spoken: null,
      remembered: null,
      unreceived: [],
    },
    run: { current: null, queue: [], fast: null, fastSessionId: null, isQueueDue: false, last: null },
    timers: {},
    counter: 0,
    reported: { isBusy: false, isAlive: false },
    ending: null,
  };
}
