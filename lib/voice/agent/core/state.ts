import type { JsonObject } from '../../../kit/json.ts';
import type { EventBody } from '../../socket/types.ts';
import type { ProviderEvent } from '../provider/provider.ts';
import type { SummaryCheck } from '../text/validation.ts';
import { NO_USAGE, type Usage } from '../usage.ts';

/**
 * The realtime agent as a state machine (contract 06 §6 to §8): `reduce(state, event)` returns the next state and the
 * effects, in the order in which they are to be performed. It reads no clock and touches nothing: time comes with the
 * events, and timers are effects. A `State` is never changed; every step returns another one.
 *
 * Region T, which socket owns the session, is `ResumableSession` with `AGENT_RULES`.
 */
export interface State {
  readonly config: AgentConfig;
  /**
   * `closing` while a last answer is rendered after the provider was lost for good. `outliving`: the client's socket is
   * closed, and the runs go on, whose answers go to the phone as messages.
   */
  phase: 'open' | 'closing' | 'outliving' | 'closed';
  isAttached: boolean;
  /** When the socket was lost; null while there is one. */
  detachedAt: number | null;
  /** The agent's chat session, once it is known. */
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
  /** Generation of each timer that is set. */
  timers: Readonly<Record<string, number>>;
  /** The last number given to a timer, a run, a delivery or a drain. */
  counter: number;
  /** The state of the session's work that the socket was last told. */
  told: { isBusy: boolean; isAlive: boolean };
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
  /** Grace and long tools move runs to the background: `promotion_enabled` and mode `promote`. */
  promotes: boolean;
  promoteAfter: number;
  spokenHandoff: boolean;
  /** 0: progress is not spoken. */
  progressSpokenAfter: number;
  progressRepeat: number;
  resultDelivery: DeliveryMode;
  /** The provider has a primitive for text that is to be spoken word for word, which may come without a transcript. */
  speaksExactText: boolean;
  /** Lower-case parts of the names of tools that take long. */
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
  /** `asleep`: lost while nothing went on, and dialled once something does. `waiting`: for the next try. */
  phase: 'up' | 'asleep' | 'dialling' | 'waiting';
  /** Tries since the last turn that completed. */
  tries: number;
  /** When it came up. */
  upAt: number;
  /** When it was missed first. */
  lostAt: number;
  /** Why it was lost, in words. */
  message: string;
  /** The provider ends the session soon. */
  isRenewalDue: boolean;
}

export type DeliveryMode = 'speak_verbatim' | 'speak_when_idle' | 'notify_then_speak' | 'visual_only';

/** Region P: what the user says, and the one response that the provider may have in flight. */
export interface Turn {
  input: 'idle' | 'listening' | 'awaiting_transcript';
  /** Utterances that were committed and have no transcript yet. */
  awaiting: number;
  /** Bytes of audio since the last commit or clear. */
  uncommitted: number;
  lastChunkId: number;
  /** Bytes of audio in this session. */
  totalBytes: number;
  /** When the microphone was last heard. */
  micAt: number | null;
  /** Playback when the user began to speak. */
  playedBefore: number;
  /** The user has cut an answer or a run, and said nothing since. */
  isCut: boolean;
  active: ActiveResponse | null;
  /** At most one per kind. */
  queue: readonly ResponseRequest[];
  /** Responses that nobody asked for are dropped: from a delivery on until the next request. */
  isSuppressing: boolean;
  /** Requests that were cancelled before their response started, which may start nevertheless until `orphansUntil`. */
  orphans: number;
  orphansUntil: number;
  /** Ids of the last responses that are over; whatever still comes of them is dropped. */
  ended: readonly string[];
  /** Ids of the last function calls, each of which is answered once. */
  calls: readonly string[];
}

export type RequestKind = 'user' | 'handoff' | 'tool_followup' | 'delivery';

export interface ResponseRequest {
  kind: RequestKind;
  prompt: Prompt | null;
}

/** Content of a response, beyond the provider's own instructions; the actor words it. */
export type Prompt =
  /** An answer that the user already has, although the provider did not speak it (contract 06 §7.3). */
  | { type: 'delivered'; request: string; answer: string }
  /** The task goes on in the background. */
  | { type: 'handoff' }
  /** A queued task starts. */
  | { type: 'transition'; request: string }
  | { type: 'delivery'; mode: DeliveryMode; result: Result }
  /** The rest of an answer, which ended with its connection after `said`. */
  | { type: 'rest'; said: string; result?: Result }
  /** The user's last words were lost with the connection: they are asked to say them again. */
  | { type: 'repeat' };

export interface ActiveResponse {
  request: ResponseRequest;
  /** Null until the response has started. */
  id: string | null;
  /** Dropped whole: the provider started it unasked while a delivery was due. */
  isDropped: boolean;
  /** May be the response of a request that was cancelled: held back until that is certain. */
  isSuspect: boolean;
  /** `voice.response.started` was made. */
  isAnnounced: boolean;
  hasSpoken: boolean;
  /** All of its audio has come. */
  isSpoken: boolean;
  /** The end of what it has said. */
  said: string;
  hasCalled: boolean;
  /** Function calls of a suspect response. */
  heldCalls: readonly FunctionCall[];
  /** The provider would not begin it beside one that was cancelled; it is asked again when that one is over. */
  isRefused: boolean;
}

export interface FunctionCall {
  callId: string;
  name: string;
  /** JSON text that nobody has checked. */
  args: string;
  /** The response spoke before it called. */
  hasSpoken: boolean;
}

/** Region F: who speaks. */
export interface Floor {
  speaker: 'free' | 'provider' | 'relay_tts';
  /** Waits for the phone to have played what it was sent. */
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
  /** It was cut by noise once, and offered again. */
  isReoffered: boolean;
}

/** Region D: the delivery of results, one at a time. */
export interface Deliveries {
  current: Delivery | null;
  /** Results whose turn has not come. */
  backlog: readonly Result[];
  /** For `svc.result.respeak`. */
  last: Result | null;
  /** The answer that was cut last; noise instead of a turn leaves it deliverable. */
  cut: { result: Result; at: number } | null;
  /** The answer that the provider spoke last. */
  spoken: Result | null;
  /** Delivered past the provider's history: the next turn's request mentions it. */
  remembered: { request: string; answer: string } | null;
  /** Delivered while no socket was there to receive them. */
  unreceived: readonly Result[];
}

export interface Delivery {
  generation: number;
  result: Result;
  label: 'forced_summary' | 'fallback' | 'respeak';
  phase: 'waiting_floor' | 'held' | 'draining' | 'requested' | 'streaming' | 'fallback';
  /** The part that the provider has said. */
  text: string;
  hasAudio: boolean;
  /** Size of the events that are held back, about in bytes. */
  held: number;
  /** The provider called a function instead, and was asked again. */
  isRepeated: boolean;
  /** The floor was waited for long enough. */
  isFloorDue: boolean;
  /** True if anything came since the confirm timer was set. */
  hasProgress: boolean;
  /** The phone was there when it was sent the whole text. */
  isShown: boolean;
}

/** Region R: the run slot, its queue and the fast lane. */
export interface Runs {
  current: Run | null;
  queue: readonly Task[];
  /** A second task beside a background run, silent towards the client. */
  fast: FastRun | null;
  /** The chat session of the fast lane, once it has one. */
  fastSessionId: string | null;
  /** The queue goes on although the previous result has not settled. */
  isQueueDue: boolean;
  /** The run that ended last, for `svc_get_status`. */
  last: RunFacts | null;
}

/** A task that the provider asked for with `svc_run_task`. */
export interface Task {
  callId: string;
  /** Names the run until the agent does. */
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
  /** The response that called spoke before it did. */
  hasCallerSpoken: boolean;
  startedAt: number;
  isDrafting: boolean;
  /** Latest message of the active tool. */
  progress: string | null;
  /** Number of `svc.run.started` events so far. */
  announced: number;
  /** `runId` is the agent's. */
  isNamed: boolean;
  /** Status that was spoken last, and when. */
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
  /** Runs that are alive go on without the client. */
  keepsRuns?: boolean;
}

/** The outcome of a function call; the actor makes the JSON of contract 06 §6.2 of it. */
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
  /** The relay was frozen, or is: nothing more comes (contract 09 §3). */
  | { type: 'frozen'; message: string };

/** Playback on the phone of the audio that it was sent. */
export interface Playback {
  /** Highest `audio_event_id` that it has reported; 0 for none. */
  played: number;
  /** True if the phone has played everything, as far as is known. */
  isAllHeard: boolean;
}

/** An event, at `at` (monotonic milliseconds). */
export type Event = { at: number } & (
  | {
      /** A message of the owner that the socket does not handle by itself. */
      type: 'client';
      message: JsonObject;
      playback: Playback;
    }
  | { type: 'provider'; event: ProviderEvent; playback: Playback }
  /** Another connection to the provider is open, or could not be opened. */
  | { type: 'dialled' }
  | { type: 'dialFailed'; message: string }
  /** The provider's socket took no more. */
  | { type: 'providerRefused'; what: 'toolResult' | 'request' }
  | { type: 'run'; key: number; event: RunEvent }
  | { type: 'rendered'; id: number; pcm: Uint8Array; sampleRate: number }
  /** `done` has the members that a rendered `voice.response.done` adds. Comes after `stopRender`, too, and is ignored then. */
  | { type: 'renderEnded'; id: number; error?: string; done?: JsonObject }
  | { type: 'timer'; name: string; generation: number }
  | { type: 'attached' }
  | { type: 'detached' }
  /** The socket's side of the session is over. */
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
  /** Publish an event. With `hold`, keep it until `release` or `discard` of the response of that id. */
  | { type: 'emit'; event: EventBody; hold?: string }
  | { type: 'audio'; audio: OutputAudio; hold?: string }
  | { type: 'release'; hold: string }
  | { type: 'discard'; hold: string }
  /** A marker for the event log only. */
  | { type: 'mark'; event: EventBody }
  | { type: 'provider'; command: ProviderCommand }
  /** Connect the provider anew, with what was said so far; answered by `dialled` or `dialFailed`. */
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
  /** Nothing of the run is wanted any more. */
  | { type: 'abortRun'; key: number; runId: string | null }
  | { type: 'approve'; runId: string; confirmationId: string; answer: string }
  | { type: 'render'; id: number; text: string }
  | { type: 'stopRender'; id: number }
  | { type: 'setTimer'; name: string; generation: number; delay: number }
  | { type: 'clearTimer'; name: string; generation: number }
  /** True if a background run is alive, which the end of a socket does not end. */
  | { type: 'activity'; isBusy: boolean }
  /** Milliseconds for which the session waits for its phone. */
  | { type: 'resumeTtl'; ttl: number }
  /** Hand an answer that was not received to the phone-message service. */
  | { type: 'phoneMessage'; text: string; runId: string; chatSessionId: string | null }
  /** Close the session, its provider and its runs. Always the last effect. */
  | { type: 'close'; code: number; reason: string; why: string };

export interface OutputAudio {
  responseId: string;
  pcm: Uint8Array;
  sampleRate: number;
  /** Where the audio is in the provider's history; absent for rendered speech. */
  itemId?: string;
  contentIndex?: number;
  /** Further members of the event. */
  labels: JsonObject;
}

/** Compares what the provider says with the authoritative answer (contract 06 §7.2). */
export type CheckSummary = (answer: string) => SummaryCheck;

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
    told: { isBusy: false, isAlive: false },
    ending: null,
  };
}
