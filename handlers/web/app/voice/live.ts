import { batch, computed, type ReadonlySignal, signal } from '@preact/signals';
import { fromBase64 } from '../../../../lib/kit/bytes.ts';
import { type Cancel, every, systemClock } from '../../../../lib/kit/clock.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import { messageOf } from '../../shared/load.tsx';
import type { App } from '../context.ts';
import { type Capture, startCapture } from './capture.ts';
import { chosenVoice } from './choice.ts';
import { createDetector, type Detector } from './detector.ts';
import { createLiveLink, type LiveLink } from './live-link.ts';
import { EMPTY_VIEW, type LiveView, withCut, withEnd, withEvent } from './live-turns.ts';
import { PROVIDER_GONE, wordsOf } from './live-words.ts';
import type { LiveVoice } from './offer.ts';
import { createPlayer, type Player } from './player.ts';
import { loudnessOf, meterOf } from './speech.ts';
import { createUplink } from './uplink.ts';

/** `hearing`: somebody speaks. `listening`: silence. `redialling`: the relay has lost its provider. */
export type LiveState =
  | 'off'
  | 'opening'
  | 'listening'
  | 'hearing'
  | 'thinking'
  | 'speaking'
  | 'reconnecting'
  | 'redialling';

/** Frames before the notice of speech that belong to it, and those that are buffered until it is certain. */
const LEAD = 20;
const FRAMES_BEFORE = 150;
/** Frames between two updates of the meter. */
const METER = 3;
const CANCEL: JsonObject = { type: 'response.cancel' };
/** Milliseconds between two checks for silence of the relay, and the silences after which it counts as lost. */
const WATCH = 2000;
const NO_ACKNOWLEDGEMENT = 8000;
const NO_ANSWER = 90_000;

export type Live = ReturnType<typeof createLive>;

/** Resources of one session. */
interface Open {
  link: LiveLink;
  player: Player;
  capture: Capture | null;
  detector: Detector | null;
  stopWatch: Cancel;
}

/**
 * A spoken conversation with the realtime agent (contract 06): the microphone stays open, an utterance starts and ends
 * automatically or by the button, and speech interrupts the agent.
 */
export function createLive(app: App) {
  const isHandsFree = app.settings.values.voice_hands_free;
  const view = signal<LiveView>(EMPTY_VIEW);
  const phase = signal<'off' | 'opening' | 'open' | 'reconnecting'>('off');
  const isHearing = signal(false);
  const isSpeaking = signal(false);
  const isMuted = signal(false);
  const level = signal(0);
  const error = signal('');
  const hint = signal('');
  const uplink = createUplink({
    send: (message) => open?.link.send(message),
    onLost() {
      hint.value = 'The connection is too slow for your voice: some words were lost.';
    },
  });
  let open: Open | null = null;
  /** True if the utterance was started by the button, which also ends it. */
  let isManual = false;
  /** True if the utterance contains sound. */
  let hasSound = false;
  let before: Int16Array[] = [];
  let frames = 0;
  let peak = 0;
  let heardFromRelay = 0;
  /** Pending answers to `response.cancel`, until which arriving events belong to the cancelled response. */
  let cancels = 0;
  /** The response whose sound arrived last, and the one that must not be played any more. */
  let sounding: unknown = null;
  let cut: unknown = null;
  /** Set while the relay waits until all speech so far has been heard. */
  let drain: unknown = null;
  let chatSession: string | null = null;

  const state = computed<LiveState>(() => {
    if (phase.value !== 'open') return phase.value;
    if (isHearing.value) return 'hearing';
    if (isSpeaking.value) return 'speaking';
    if (view.value.isRedialling) return 'redialling';
    return view.value.isBusy ? 'thinking' : 'listening';
  });

  /** Opens the microphone and a session. Called by a tap. */
  async function start({ rate, provider }: LiveVoice): Promise<void> {
    if (open) return;
    batch(() => {
      phase.value = 'opening';
      error.value = '';
      hint.value = '';
      isMuted.value = false;
    });
    const link = createLiveLink({ app, onEvent, onConnected, onLost, onEnded });
    const player = createPlayer({ rate, onPlayed: (id) => link.played(id) });
    const stopPlaying = player.isPlaying.subscribe((isPlaying) => {
      isSpeaking.value = isPlaying;
      if (!isPlaying) drained();
    });
    const stopLooking = every(systemClock, WATCH, watch, () => {});
    const own: Open = { link, player, capture: null, detector: null, stopWatch: () => [stopPlaying(), stopLooking()] };
    open = own;
    try {
      const lost = () => stop('The microphone was taken away.');
      const capture = await startCapture({ hear: (frame) => hear(frame), lost });
      if (open !== own) return capture.close();
      own.capture = capture;
      own.detector = createDetector(capture.rate);
      const voice = chosenVoice(app, 'live', provider);
      await link.open({
        ...(voice !== undefined && { voice }),
        ...(chatSession !== null && { chat_session_id: chatSession }),
      });
    } catch (reason) {
      if (open === own) stop(messageOf(reason));
    }
  }

  /** Ends the session and releases everything. Its text stays on the page. */
  function stop(why = ''): void {
    const ended = open;
    if (!ended) return;
    open = null;
    ended.stopWatch();
    ended.player.close();
    ended.capture?.close();
    ended.link.close();
    uplink.reset();
    [isManual, before, cancels, sounding, cut, drain] = [false, [], 0, null, null, null];
    batch(() => {
      phase.value = 'off';
      isHearing.value = false;
      isSpeaking.value = false;
      level.value = 0;
      error.value = why;
      view.value = withEnd(view.value);
    });
  }

  function onConnected(): void {
    phase.value = 'open';
    heardFromRelay = systemClock.monotonic();
    // It may have been lost with the connection.
    if (cancels > 0) open?.link.send(CANCEL);
    uplink.connect();
  }

  function onLost(): void {
    uplink.disconnect();
    phase.value = 'reconnecting';
  }

  /** A provider itself ends a quiet conversation. In the middle of one, it has failed. */
  const onEnded = (why: string) => stop(why === '' && view.peek().isBusy ? PROVIDER_GONE : why);

  function hear(frame: Int16Array): void {
    const loudness = loudnessOf(frame);
    const isOpen = isManual || (isHandsFree.peek() && !isMuted.peek());
    peak = Math.max(peak, isOpen ? loudness : 0);
    if (++frames % METER === 0) {
      level.value = meterOf(peak);
      peak = 0;
    }
    if (phase.peek() === 'opening') return;
    if (isManual) send(frame);
    else if (isOpen) detect(frame);
  }

  function detect(frame: Int16Array): void {
    if (!open?.detector) return;
    const { detector, player } = open;
    before.push(frame);
    if (before.length > FRAMES_BEFORE) before.shift();
    const change = detector.hear(frame, isSpeaking.peek() ? player.loudness() : null);
    if (change === 'noticed' || change === 'doubted') player.duck(change === 'noticed');
    else if (change === 'began') {
      before = before.slice(-LEAD - detector.sinceNoticed());
      begin();
    } else if (isHearing.peek()) {
      before = [];
      send(frame);
    }
    if (change === 'ended') finish();
  }

  /** Drops possible speech so far. */
  function forgetSpeech(): void {
    open?.detector?.reset();
    open?.player.duck(false);
  }

  function send(frame: Int16Array): void {
    hasSound = true;
    uplink.push(frame, open?.capture?.rate ?? 0);
  }

  /** Somebody begins to speak. */
  function begin(): void {
    if (isSpeaking.peek()) interruptSpeech();
    isHearing.value = true;
    hint.value = '';
    hasSound = false;
    for (const frame of before) send(frame);
    before = [];
  }

  /** The utterance is over, and the agent should answer. */
  function finish(): void {
    if (!isHearing.peek()) return;
    isManual = false;
    forgetSpeech();
    if (!hasSound) {
      // Two taps in quick succession: the relay ignores an utterance without sound.
      isHearing.value = false;
      return;
    }
    uplink.commit(open?.capture?.rate ?? 0);
    heardFromRelay = systemClock.monotonic();
    batch(() => {
      isHearing.value = false;
      view.value = { ...view.value, isBusy: true };
    });
  }

  /** The button: starts an utterance, even when muted, or ends the present one. */
  function press(): void {
    if (phase.peek() !== 'open' && phase.peek() !== 'reconnecting') return;
    if (isHearing.peek()) {
      finish();
      return;
    }
    // Sound from before the press was not meant for the agent.
    [isManual, before] = [true, []];
    begin();
  }

  /** Silences the agent at once, and cancels its answer unless a task is running, which that would abort. */
  function interruptSpeech(): void {
    const { progress, isInBackground } = view.peek();
    silence();
    if (progress === '' && !isInBackground) cancel();
    else cut = sounding;
  }

  function silence(): void {
    open?.player.clear();
    view.value = withCut(view.value);
  }

  function cancel(): void {
    cancels++;
    open?.link.send(CANCEL);
  }

  /** Stops speech, and the task. */
  function interrupt(): void {
    if (isHearing.peek()) {
      uplink.drop();
      isManual = false;
      forgetSpeech();
      isHearing.value = false;
    }
    silence();
    cancel();
  }

  function mute(on: boolean): void {
    isMuted.value = on;
    if (on) stopDetecting();
  }

  function setHandsFree(on: boolean): void {
    app.settings.set('voice_hands_free', on);
    isMuted.value = false;
    if (!on) stopDetecting();
  }

  /** Speech heard without the button is not sent unless it is complete. */
  function stopDetecting(): void {
    if (isManual) return;
    if (isHearing.peek()) uplink.drop();
    before = [];
    forgetSpeech();
    isHearing.value = false;
  }

  function drained(): void {
    if (drain === null || !open) return;
    open.link.send({ type: 'playback.drained', call_id: drain, played_audio_event_id: open.link.lastPlayed() });
    drain = null;
  }

  function watch(): void {
    const silent = systemClock.monotonic() - heardFromRelay;
    if (phase.peek() !== 'open') return;
    if (uplink.isWaiting() && silent > NO_ACKNOWLEDGEMENT) open?.link.replace();
    else if (view.peek().isBusy && silent > NO_ANSWER) stop('The relay does not answer.');
  }

  function onEvent(event: JsonObject): void {
    heardFromRelay = systemClock.monotonic();
    switch (event.type) {
      case 'voice.input_audio.received':
        if (typeof event.input_chunk_id === 'number') uplink.acknowledge(event.input_chunk_id);
        return;
      case 'voice.output_audio.delta':
        play(event);
        return;
      case 'voice.playback_drain.requested':
        drain = event.call_id ?? '';
        if (!isSpeaking.peek()) drained();
        return;
      case 'voice.error':
        fail(event);
        return;
      case 'voice.input_transcript.delta':
      case 'voice.input_transcript.final':
        uplink.heard();
        break;
      case 'voice.response.started':
        uplink.heard();
        if (cut !== event.response_id) cut = null;
        break;
      case 'voice.response.done':
        if (event.cancelled === true) cancels = Math.max(0, cancels - 1);
        break;
    }
    if (typeof event.chat_session_id === 'string') chatSession = event.chat_session_id;
    // Text of a cancelled response is not shown either.
    if (cancels > 0 && event.type === 'voice.response.delta') return;
    view.value = withEvent(view.value, event);
  }

  function play({ audio_event_id, audio_base64, sample_rate, response_id }: JsonObject): void {
    sounding = response_id;
    if (cancels > 0 || (cut !== null && cut === response_id)) return;
    const pcm = typeof audio_base64 === 'string' ? fromBase64(audio_base64) : null;
    if (!pcm || typeof audio_event_id !== 'number' || typeof sample_rate !== 'number') return;
    if (open?.player.play(audio_event_id, pcm, sample_rate) === false) {
      hint.value = 'The answer is too long to be spoken in full: read the rest.';
    }
  }

  /** An error ends the session, except for notices (contract 06 §1) and rate limits of the provider. */
  function fail(event: JsonObject): void {
    if (typeof event.retry_after_s === 'number') {
      hint.value = 'The provider of live voice is busy for a moment. Try again soon.';
      view.value = { ...view.value, isBusy: false };
      return;
    }
    const why = wordsOf(event);
    if (why !== null) stop(why);
  }

  return {
    view: view as ReadonlySignal<LiveView>,
    state,
    /** Loudness of the microphone, 0 to 1. */
    level: level as ReadonlySignal<number>,
    isMuted: isMuted as ReadonlySignal<boolean>,
    /** Why the session has ended, worded for people. */
    error: error as ReadonlySignal<string>,
    /** Information about the running session. */
    hint: hint as ReadonlySignal<string>,
    start,
    stop: () => stop(),
    press,
    /** True during an utterance, with or without a connection. */
    isHearing: (): boolean => isHearing.peek(),
    finish,
    interrupt,
    mute,
    isHandsFree: isHandsFree as ReadonlySignal<boolean>,
    setHandsFree,
    /** Answers a question of the agent. */
    answer(id: string, answer: 'allow_once' | 'deny'): void {
      open?.link.send({ type: 'svc.confirm', confirmation_id: id, answer });
      view.value = { ...view.value, question: null };
    },
  };
}
