import { mkdtempSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { connected } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { randomCode, registerCode, startNodeTarget, type Target } from '../support/relay.ts';
import { AGENT_KEY, agentEnv, runTask } from '../support/voice/agent.ts';
import { type AgentApi, holdRuns, startAgentApi } from '../support/voice/agent-api.ts';
import { burstsWav, pitchOf, sinePcm, wavOf } from '../support/voice/audio.ts';
import { joined, noiseOf, pcmOf, samplesOf, silence, trimmed } from '../support/voice/microphone.ts';
import { type Provider, startProvider } from '../support/voice/provider.ts';
import { type Conversation, type Script, scriptRealtime } from '../support/voice/realtime-provider.ts';
import { canSpeak, spoken } from '../support/voice/speech.ts';

/** Sound for the fake microphone. Chromium reads it whenever a page opens the microphone. */
const folder = mkdtempSync(join(tmpdir(), 'svc-relay-test-'));
const SOUND = join(folder, 'microphone.wav');

const ARGS = [
  '--use-fake-ui-for-media-stream',
  '--use-fake-device-for-media-stream',
  `--use-file-for-fake-audio-capture=${SOUND}`,
  '--autoplay-policy=user-gesture-required',
];

const RATE = 24_000;
const CAPTURE_RATE = 48_000;
const ANSWER = 'There are 17 meetings on Thursday, the longest with Marguerite about the budget.';

/**
 * Listens in at the loudspeaker, and remembers what a page has to free. Runs before the page's own code. What the page does
 * to its sound is noted as it does it: a busy machine would miss a short stretch by looking at samples now and then.
 */
function watchSound(): void {
  const taps: AnalyserNode[] = [];
  const gains: AudioParam[] = [];
  const played: (number | 'stop')[] = [];
  let loudest = 0;
  const { setTargetAtTime } = AudioParam.prototype;
  AudioParam.prototype.setTargetAtTime = function (this: AudioParam, target, start, constant) {
    if (gains.includes(this)) played.push(target);
    return setTargetAtTime.call(this, target, start, constant);
  };
  const { stop } = AudioBufferSourceNode.prototype;
  AudioBufferSourceNode.prototype.stop = function (this: AudioBufferSourceNode, when?: number) {
    played.push('stop');
    return stop.call(this, when);
  };
  const contexts: AudioContext[] = [];
  const tracks: MediaStreamTrack[] = [];
  const sockets: WebSocket[] = [];
  const { connect } = AudioNode.prototype;
  const link = connect as (this: AudioNode, target: unknown) => AudioNode;
  AudioNode.prototype.connect = function (this: AudioNode, target: unknown) {
    if (target instanceof AudioDestinationNode) {
      const context = this.context as AudioContext;
      if (!contexts.includes(context)) contexts.push(context);
      const tap = context.createAnalyser();
      taps.push(tap);
      link.call(this, tap);
      if (this instanceof GainNode) gains.push(this.gain);
    }
    return link.call(this, target);
  } as typeof connect;
  const media = navigator.mediaDevices;
  const open = media.getUserMedia.bind(media);
  media.getUserMedia = async (constraints) => {
    const stream = await open(constraints);
    tracks.push(...stream.getTracks());
    return stream;
  };
  const Native = WebSocket;
  globalThis.WebSocket = class extends Native {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols);
      if (String(url).includes('/voice/')) sockets.push(this);
    }
  };
  const sound = () =>
    Math.max(
      0,
      ...taps.map((tap) => {
        const samples = new Float32Array(tap.fftSize);
        if (tap.context.state === 'running') tap.getFloatTimeDomainData(samples);
        return Math.max(...samples.map(Math.abs));
      }),
    );
  setInterval(() => {
    loudest = Math.max(loudest, sound());
  }, 20);
  Object.assign(globalThis, {
    sound,
    loudest: () => loudest,
    played: () => played,
    held: () => ({
      contexts: contexts.filter(({ state }) => state !== 'closed').length,
      tracks: tracks.filter(({ readyState }) => readyState !== 'ended').length,
      sockets: sockets.filter(({ readyState }) => readyState !== 3).length,
    }),
  });
}

interface Watched {
  /** The amplitude at the moment, and the largest so far. */
  sound(): number;
  loudest(): number;
  /** How loud the loudspeaker was made, and when a sound was stopped, in order. */
  played(): (number | 'stop')[];
  held(): { contexts: number; tracks: number; sockets: number };
}

const hums = (isHumming: boolean) => burstsWav({ hum: isHumming ? 1.2 : 0, silence: 3.6 });

/** Words with a pause of one second, and five seconds without, over white noise with a root mean square of 0.01. */
function wordsWav(): Uint8Array<ArrayBuffer> {
  const part = (text: string) => trimmed(samplesOf(spoken(text, CAPTURE_RATE, { voice: 'en-us+f4' })));
  const said = [part('Hold on for a moment, please.'), silence(1, CAPTURE_RATE), part('What is on my calendar?')];
  const sound = joined(...said, silence(5, CAPTURE_RATE));
  const noise = noiseOf(1);
  return wavOf(pcmOf(sound.map((sample) => sample * 0.5 + noise() * 0.01)), CAPTURE_RATE);
}

const soundOf = (page: Page) => page.evaluate(() => (globalThis as unknown as Watched).sound());
const loudestOf = (page: Page) => page.evaluate(() => (globalThis as unknown as Watched).loudest());
const playedBy = (page: Page) => page.evaluate(() => (globalThis as unknown as Watched).played());
const heldBy = (page: Page) => page.evaluate(() => (globalThis as unknown as Watched).held());

describeInBrowser(
  'a live conversation in the app (contract 06)',
  ({ open }) => {
    let relay: Target;
    let api: AgentApi;
    let provider: Provider;
    let script: Script;
    const ends: (() => void)[] = [];
    beforeAll(async () => {
      api = await startAgentApi({
        key: AGENT_KEY,
        capabilities: { features: { run_approval: true } },
        onEnd: (end) => ends.push(end),
      });
      provider = await startProvider((end) => ends.push(end));
      relay = await startNodeTarget({ env: agentEnv(provider, api) });
    });
    afterAll(async () => {
      await relay?.stop();
      for (const end of ends) end();
      await rm(folder, { recursive: true, force: true });
    });
    beforeEach(() => {
      script = scriptRealtime(provider);
    });

    /** The app at its voice screen, of a browser whose microphone hears a hum every few seconds. */
    async function openVoice({ without = [] as string[], url = relay.url, hum = true, sound = hums(hum) } = {}) {
      await writeFile(SOUND, sound);
      const { page, allow } = await open();
      await page.addInitScript(watchSound);
      const app = `${url.replace('127.0.0.1', 'localhost')}/app/`;
      const code = randomCode();
      await registerCode(relay, code, { without: ['bridge', 'desktop', ...without] });
      await page.goto(`${app}#code=${code}`);
      await connected(page);
      await page.goto(`${app}#/voice`);
      return { page, allow };
    }

    /** The same, in a live conversation. */
    async function openLive(options: Parameters<typeof openVoice>[0] = {}) {
      const opened = await openVoice(options);
      const { page } = opened;
      await page.getByRole('switch', { name: 'Live conversation' }).check();
      await page.getByRole('button', { name: 'Talk' }).click();
      await page.getByRole('button', { name: 'Mute' }).waitFor();
      await expect.poll(() => script.conversations.length).toBe(1);
      return { ...opened, conversation: script.conversations[0] as Conversation };
    }

    const heardBy = ({ sent }: Conversation): Buffer =>
      Buffer.concat(sent('input_audio_buffer.append').map(({ audio }) => Buffer.from(String(audio), 'base64')));

    it('hears an utterance by itself, has a task done, and speaks the answer', async () => {
      script.transcripts.push('What is on Thursday?');
      const usage = { input_token_details: { audio_tokens: 30_000 }, output_token_details: { audio_tokens: 4000 } };
      script.turns.push(runTask('Thursday'), { text: ANSWER, audio: [sinePcm(1, RATE)], usage });
      api.onRun(async (run) => {
        run.open();
        await run.event({ type: 'run.started', run_id: 'run-1' });
        await run.event({ type: 'tool.started', call_id: 'c1', tool_name: 'calendar' });
        await run.event({ type: 'tool.completed', call_id: 'c1', tool_name: 'calendar', result: 'seventeen' });
        await run.event({ type: 'assistant.delta', delta: ANSWER });
        await run.event({ type: 'run.completed' });
        run.end();
      });
      const { page, conversation } = await openLive();
      await page.getByRole('article', { name: 'You' }).getByText('What is on Thursday?').waitFor();
      await page.getByRole('article', { name: 'Agent' }).getByText(ANSWER).waitFor();
      // It may be over by now.
      await expect.poll(() => loudestOf(page)).toBeGreaterThan(0.1);
      await page.getByText('1 min, about 34k audio tokens').waitFor();
      expect(api.runs.at(-1)?.body.message).toContain('Thursday');
      const heard = heardBy(conversation);
      expect(heard.length / 2 / RATE).toBeGreaterThan(1);
      expect(pitchOf(heard, RATE)).toBeGreaterThan(420);
      expect(pitchOf(heard, RATE)).toBeLessThan(460);
      expect(await heldBy(page)).toEqual({ contexts: 2, tracks: 1, sockets: 1 });
      await page.getByRole('link', { name: 'Home' }).click();
      await expect.poll(() => heldBy(page)).toEqual({ contexts: 0, tracks: 0, sockets: 0 });
      await expect.poll(() => conversation.socket.isOver).toBe(true);
    });

    const speaking = 'Speaking: talk or tap to interrupt';
    /** An answer that goes on until the case ends it. */
    const talkative = (seconds = 20) => ({ text: ANSWER, audio: [sinePcm(seconds, RATE)], isOpen: true });

    it('is silent at once when it is stopped, and tells the provider how much was heard', async () => {
      script.transcripts.push('Tell me everything.');
      script.turns.push(talkative(60));
      const { page, conversation } = await openLive({ hum: false });
      const talk = page.getByRole('button', { name: 'Talk' });
      await page.getByText('Speak whenever you like').waitFor();
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      // The room is quiet: the button begins and ends what is said.
      await talk.click();
      await page.getByText('Listening', { exact: true }).waitFor();
      await expect.poll(() => conversation.heard).toBeGreaterThan(0);
      await talk.click();
      const asked = performance.now();
      await page.getByText(speaking).waitFor();
      await expect.poll(() => soundOf(page)).toBeGreaterThan(0.1);
      await expectAccessible(page);
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByText('Stopped.').waitFor();
      await expect.poll(() => conversation.sent('response.cancel').length).toBeGreaterThan(0);
      await expect.poll(() => conversation.sent('conversation.item.truncate').length).toBe(1);
      // What was heard, not the minute that was sent.
      expect(conversation.sent('conversation.item.truncate')[0]?.audio_end_ms).toBeLessThan(performance.now() - asked);
      await expect.poll(() => soundOf(page)).toBe(0);
      // The next answer is heard again.
      script.transcripts.push('Go on.');
      script.turns.push({ text: 'Gladly.', audio: Array.from({ length: 10 }, () => sinePcm(1, RATE)) });
      // Two taps in a moment say nothing, and leave nobody waiting.
      await talk.evaluate((button: HTMLElement) => {
        button.click();
        button.click();
      });
      await page.getByText('Speak whenever you like').waitFor();
      await talk.press('Enter');
      await expect.poll(() => conversation.heard).toBeGreaterThan(0);
      await talk.press('Enter');
      await page.getByText('Gladly.').waitFor();
      await expect.poll(() => soundOf(page)).toBeGreaterThan(0.1);
      expect(await page.getByText('Stopped.').count()).toBe(1);
    });

    it('is interrupted by speaking', async () => {
      script.transcripts.push('Tell me everything.', 'No, something else.');
      script.turns.push(talkative(60), { text: 'Something else, then.', audio: [sinePcm(0.5, RATE)] });
      const { page, conversation } = await openLive();
      await page.getByText(speaking).waitFor();
      await page.getByText('No, something else.').waitFor();
      await page.getByText('Stopped.').waitFor();
      await page.getByText('Something else, then.').waitFor();
      expect(conversation.sent('response.cancel').length).toBe(1);
    });

    it.runIf(canSpeak())(
      'words interrupt it, and a pause of a second between them does not end the request',
      async () => {
        script.transcripts.push('Tell me everything.', 'No, something else.');
        script.turns.push(talkative(60), { text: 'Something else, then.', audio: [sinePcm(0.5, RATE)] });
        const { page, conversation } = await openLive({ sound: wordsWav() });
        await page.getByText(speaking).waitFor();
        expect(conversation.sent('input_audio_buffer.commit').length).toBe(1);
        // Both parts, the pause between them, and the silence that ends it.
        expect(heardBy(conversation).length / 2 / RATE).toBeGreaterThan(3.5);
        await page.getByText('Stopped.').waitFor();
        await page.getByText('Something else, then.').waitFor();
        expect(conversation.sent('response.cancel').length).toBe(1);
        expect(conversation.sent('input_audio_buffer.commit').length).toBe(2);
        // Before it was silent, the agent was quieter: a fifth of its amplitude.
        const played = await playedBy(page);
        expect(played.slice(0, played.indexOf('stop')).at(-1)).toBe(0.2);
        expect(await loudestOf(page)).toBeGreaterThan(0.2);
      },
    );

    it('hears nothing while muted, but what is said with the button held down', async () => {
      script.transcripts.push('Are you there?');
      script.turns.push({ text: 'I am.', audio: [sinePcm(0.5, RATE)] });
      const { page, conversation } = await openLive({ hum: false });
      await page.getByRole('button', { name: 'Mute' }).click();
      await page.getByText('Muted: hold to talk, or tap').waitFor();
      await expectAccessible(page);
      const talk = page.getByRole('button', { name: 'Talk' });
      await talk.focus();
      await page.keyboard.down('Space');
      await page.getByText('Listening', { exact: true }).waitFor();
      expect(conversation.sent('input_audio_buffer.commit')).toEqual([]);
      // Long enough to be held, not tapped.
      await expect.poll(() => heardBy(conversation).length / 2 / RATE).toBeGreaterThan(0.5);
      await page.keyboard.up('Space');
      await page.getByText('I am.').waitFor();
      await page.getByText('Muted: hold to talk, or tap').waitFor();
      expect(conversation.sent('input_audio_buffer.commit').length).toBe(1);
    });

    it('hears only what is said with the button or the space bar when it is not hands-free', async () => {
      script.transcripts.push('Are you there?');
      script.turns.push({ text: 'I am.', audio: [sinePcm(0.5, RATE)] });
      const { page, allow } = await openVoice();
      await page.getByRole('switch', { name: 'Live conversation' }).check();
      await page.getByRole('switch', { name: 'Hands-free' }).uncheck();
      await page.getByRole('button', { name: 'Talk' }).click();
      await page.getByText('Hold to talk, or tap').waitFor();
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      expect(await page.getByRole('button', { name: 'Mute' }).count()).toBe(0);
      // Wherever the focus is, as long as nothing there takes the space bar.
      await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
      await page.keyboard.down('Space');
      await page.getByText('Listening: let go or tap to send').waitFor();
      const conversation = script.conversations[0] as Conversation;
      await expect.poll(() => heardBy(conversation).length / 2 / RATE).toBeGreaterThan(0.5);
      expect(conversation.sent('input_audio_buffer.commit')).toEqual([]);
      await page.keyboard.up('Space');
      await page.getByText('I am.').waitFor();
      const before = heardBy(conversation).length;
      // The microphone has hummed again by then, and nobody has pressed anything.
      await page.getByText('Hold to talk, or tap').waitFor();
      await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 5000)));
      expect(heardBy(conversation).length).toBe(before);
      expect(conversation.sent('input_audio_buffer.commit').length).toBe(1);
      allow(/WebSocket/);
      await page.reload();
      await expect.poll(() => page.getByRole('switch', { name: 'Hands-free' }).isChecked()).toBe(false);
    });

    it('shows captions while they are spoken, keeps the last one in sight, and hides them', async () => {
      const { page, conversation } = await openLive({ hum: false });
      const captions = page.getByRole('log', { name: 'Captions' });
      expect(await captions.getAttribute('aria-live')).toBe('polite');
      const id = conversation.start({ text: 'It begins.', isOpen: true });
      await captions.getByText('It begins.').waitFor();
      for (let line = 1; line <= 40; line++) conversation.say(id, `\n\nLine ${line} of the answer.`);
      await expect.poll(() => page.getByText('Line 40 of the answer.').isVisible()).toBe(true);
      // Its end lies above the buttons, which stay at the lower edge of the screen.
      const endOf = async (one: Locator) => {
        const box = await one.boundingBox();
        return (box?.y ?? 0) + (box?.height ?? 0);
      };
      const state = page.getByRole('status').filter({ hasText: 'The agent is at work' });
      await expect.poll(async () => (await endOf(captions)) < (await endOf(state))).toBe(true);
      await expectAccessible(page);
      await page.getByRole('button', { name: 'Voice settings' }).click();
      await page.getByRole('switch', { name: 'Captions' }).uncheck();
      await page.getByRole('button', { name: 'Close' }).click();
      expect(await captions.count()).toBe(0);
      expect(await page.getByText('Line 40 of the answer.').count()).toBe(0);
    });

    it('lets a person choose a voice and hear it before', async () => {
      const { page } = await openVoice({ hum: false });
      await page.getByRole('switch', { name: 'Live conversation' }).check();
      await page.getByRole('button', { name: 'Voice settings' }).click();
      const voice = page.getByRole('combobox', { name: 'Voice' });
      await voice.selectOption({ label: 'Cedar' });
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      script.turns.push({ text: 'Hello!', audio: [sinePcm(20, RATE)] });
      await page.getByRole('button', { name: 'Listen to it' }).click();
      await expect.poll(() => soundOf(page)).toBeGreaterThan(0.1);
      const preview = script.conversations[0] as Conversation;
      expect(preview.sent('session.update')[0]?.session).toMatchObject({ audio: { output: { voice: 'cedar' } } });
      await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
      await expect.poll(() => heldBy(page)).toEqual({ contexts: 0, tracks: 0, sockets: 0 });
      await page.getByRole('button', { name: 'Close' }).click();
      await page.reload();
      await connected(page);
      await page.getByRole('button', { name: 'Talk' }).click();
      await page.getByRole('button', { name: 'Mute' }).waitFor();
      const conversation = script.conversations.at(-1) as Conversation;
      expect(conversation.sent('session.update')[0]?.session).toMatchObject({ audio: { output: { voice: 'cedar' } } });
      await page.getByRole('button', { name: 'End' }).click();
    });

    it('asks the person what the agent asks, and passes the answer on', async () => {
      script.transcripts.push('Delete it.');
      script.turns.push(runTask('Delete'), { text: ANSWER, audio: [sinePcm(0.5, RATE)] });
      const question = { type: 'confirmation.requested', confirmation_id: 'ask-1', message: 'Delete the folder?' };
      const finish = holdRuns(api, ANSWER, [question]);
      const { page } = await openLive();
      await page.getByText('Delete the folder?').waitFor();
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      await page.getByRole('button', { name: 'Allow once' }).click();
      await expect.poll(() => api.posts.at(-1)?.body).toMatchObject({ confirmation_id: 'ask-1', answer: 'allow_once' });
      await page.getByText('Delete the folder?').waitFor({ state: 'hidden' });
      finish();
      await page.getByRole('article', { name: 'Agent' }).getByText(ANSWER).waitFor();
    });

    it('goes on where it was after a lost connection, and sends nothing twice', async () => {
      const proxy = await startFlakyProxy({ port: Number(new URL(relay.url).port), seed: 1, faults: ['none'] });
      ends.push(() => void proxy.close());
      script.transcripts.push('What is on Thursday?');
      script.turns.push({ text: ANSWER, audio: [sinePcm(1, RATE)] });
      const { page, conversation, allow } = await openLive({ hum: false, url: `http://127.0.0.1:${proxy.port}` });
      allow(/WebSocket|net::ERR|status of 426/);
      const talk = page.getByRole('button', { name: 'Talk' });
      await talk.click();
      await expect.poll(() => heardBy(conversation).length).toBeGreaterThan(0);
      proxy.strike('cut');
      await talk.click();
      await page.getByText(ANSWER).waitFor();
      expect(conversation.sent('input_audio_buffer.commit').length).toBe(1);
      const before = script.conversations.length;
      proxy.block('reset');
      await page.getByText('The connection is gone: connecting again').waitFor();
      const id = conversation.start({ text: 'One more thing.', audio: [sinePcm(0.5, RATE)] });
      conversation.finish(id);
      proxy.plan(['none']);
      await page.getByText('One more thing.').waitFor();
      expect(await page.getByText(ANSWER).count()).toBe(1);
      expect(script.conversations.length).toBe(before);
    });

    it('drops the oldest words when the connection takes none, and says so', async () => {
      const proxy = await startFlakyProxy({ port: Number(new URL(relay.url).port), seed: 1, faults: ['none'] });
      ends.push(() => void proxy.close());
      const { page, conversation, allow } = await openLive({ hum: false, url: `http://127.0.0.1:${proxy.port}` });
      allow(/WebSocket|net::ERR|status of 426/);
      const talk = page.getByRole('button', { name: 'Talk' });
      await talk.click();
      await expect.poll(() => heardBy(conversation).length).toBeGreaterThan(0);
      proxy.block('stall');
      await page.getByText('The connection is too slow for your voice: some words were lost.').waitFor();
      await expectAccessible(page);
      proxy.plan(['none']);
      proxy.dropClients();
      script.transcripts.push('Hello.');
      await talk.click();
      await page.getByText('Okay.').waitFor();
      // Twelve seconds are kept, and the little that was sent before.
      expect(heardBy(conversation).length / 2 / RATE).toBeLessThan(20);
    });

    it('says what the conversation has used, also when it is over', async () => {
      const { page, conversation } = await openLive({ hum: false });
      const id = conversation.start({ text: 'That was all.', isOpen: true });
      await page.getByText('That was all.').waitFor();
      expect(await page.getByText('audio tokens').count()).toBe(0);
      const usage = {
        input_tokens: 30_000,
        output_tokens: 9000,
        input_token_details: { audio_tokens: 26_000 },
        output_token_details: { audio_tokens: 8000 },
      };
      await conversation.socket.send({
        type: 'response.done',
        response: { id, status: 'completed', output: [], usage },
      });
      await page.getByText('1 min, about 34k audio tokens').waitFor();
      await expectAccessible(page);
      await page.getByRole('button', { name: 'End' }).click();
      await page.getByText('Tap to start a live conversation').waitFor();
      await page.getByText('1 min, about 34k audio tokens').waitFor();
    });

    it('06 §6.9: says that an answer was cut off, and that the relay looks for its provider, and goes on', async () => {
      const { page, conversation } = await openLive({ hum: false });
      const half = conversation.start({ text: 'The first half of it', audio: [sinePcm(0.2, RATE)], isOpen: true });
      await page.getByText('The first half of it').waitFor();
      conversation.finish(half, 'incomplete');
      await page.getByText('The answer was cut off.').waitFor();
      await expectAccessible(page);
      conversation.start({ text: 'Let me see.', isOpen: true });
      await page.getByText('Let me see.').waitFor();
      provider.refuseSockets(503);
      conversation.reset();
      await page.getByText('The provider of the voice is gone: connecting again').waitFor();
      provider.refuseSockets(undefined);
      await expect.poll(() => script.conversations.length).toBe(2);
      await page.getByText('The provider of the voice is gone: connecting again').waitFor({ state: 'hidden' });
      // The conversation is still there, and takes the next question.
      script.transcripts.push('And then?');
      const talk = page.getByRole('button', { name: 'Talk' });
      await talk.press('Enter');
      await expect.poll(() => script.conversations.at(-1)?.heard).toBeGreaterThan(0);
      await talk.press('Enter');
      await page.getByText('And then?').waitFor();
      await page.getByText('The first half of it').waitFor();
    });

    it('says that the provider has gone in the middle of an answer, and starts again', async () => {
      script.transcripts.push('Tell me everything.');
      script.turns.push(talkative());
      const { page, conversation } = await openLive();
      await page.getByText(speaking).waitFor();
      // It is not there either when the relay dials again.
      provider.refuseSockets(503);
      conversation.reset();
      await page.getByText('The provider of live voice has gone. Start again.').waitFor();
      provider.refuseSockets(undefined);
      await expectAccessible(page);
      await expect.poll(() => heldBy(page)).toEqual({ contexts: 0, tracks: 0, sockets: 0 });
      script.transcripts.push('Once more.');
      await page.getByRole('button', { name: 'Talk' }).click();
      await page.getByText('Once more.').waitFor();
      await page.getByText('Okay.').waitFor();
    });

    it('says that a relay that has started anew does not know the conversation, and frees everything', async () => {
      const { page, allow } = await openLive({ hum: false });
      // A relay that stops answers 503.
      allow(/WebSocket|net::ERR|status of (?:401|426|503)/);
      await relay.restart();
      await page.getByText('The relay no longer has this conversation. Start again.').waitFor();
      await expect.poll(() => heldBy(page)).toEqual({ contexts: 0, tracks: 0, sockets: 0 });
      await page.getByText('Tap to start a live conversation').waitFor();
    });

    it('says why there is no live conversation', async () => {
      const { page } = await openVoice({ without: ['voice:realtime'] });
      await page.getByText('it has no grant voice:realtime').waitFor();
      await expectAccessible(page);
      expect(await page.getByRole('switch', { name: 'Live conversation' }).isDisabled()).toBe(true);
    });

    it('says that the provider refuses the key of the relay', async () => {
      provider.refuseSockets(401);
      ends.push(() => provider.refuseSockets(undefined));
      const { page } = await openVoice();
      await page.getByRole('switch', { name: 'Live conversation' }).check();
      await page.getByRole('button', { name: 'Talk' }).click();
      await page.getByText('The provider of live voice refused the relay: its key is missing or wrong.').waitFor();
      provider.refuseSockets(undefined);
      await expect.poll(() => heldBy(page)).toEqual({ contexts: 0, tracks: 0, sockets: 0 });
    });
  },
  ARGS,
);
