import { writeFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { connected, PLAIN, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, type PageOptions, smallTargets } from '../support/browser.ts';
import { type FakeApi, startFakeApi } from '../support/fake-api-server.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';
import { sinePcm, wavOf } from '../support/voice/audio.ts';
import { readForm } from '../support/voice/form.ts';
import { type Provider, type ProviderCall, startProvider } from '../support/voice/provider.ts';
import { canSpeak } from '../support/voice/speech.ts';

const ARGS = [
  '--host-resolver-rules=MAP relay.test 127.0.0.1',
  '--use-fake-ui-for-media-stream',
  '--use-fake-device-for-media-stream',
  '--autoplay-policy=user-gesture-required',
];

describeInBrowser(
  'voice in the app (contract 05 §6, §7)',
  ({ open }) => {
    let relay: Target;
    let agent: FakeApi;
    let provider: Provider;
    const ends: (() => void)[] = [];
    beforeAll(async () => {
      agent = await startFakeApi((end) => ends.push(end));
      provider = await startProvider((end) => ends.push(end));
      relay = await startNodeTarget({ env: { ...PLAIN, RELAY_WEBAPI_URL: agent.url } });
      await configure(relay);
    });

    async function configure({ agentHome }: Target): Promise<void> {
      const section = { provider: 'openai', openai: { api_key: 'sk-fake', base_url: provider.url } };
      // JSON is YAML.
      await writeFile(`${agentHome}/config.yaml`, JSON.stringify({ tts: section, stt: section }));
    }

    afterAll(async () => {
      await relay?.stop();
      for (const end of ends) end();
    });

    async function openVoice(host = 'localhost', options: PageOptions = {}, target = relay) {
      const { page } = await open(options);
      const app = `${target.url.replace('127.0.0.1', host)}/app/`;
      const code = await webCode(target);
      await page.goto(`${app}#code=${code}`);
      if (host !== 'localhost') {
        await page.getByLabel('I am testing on this machine').check();
        await page.getByRole('button', { name: 'Continue without encryption' }).click();
      }
      await connected(page);
      await page.goto(`${app}#/voice`);
      return page;
    }

    /** Says something: Chromium's false microphone beeps. Opus is encoded in blocks, so that a shorter recording is empty. */
    async function say(page: Page): Promise<void> {
      const talk = page.getByRole('button', { name: 'Talk' });
      await talk.click();
      await page.getByText('Listening: let go or tap to send').waitFor();
      await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 450)));
      await talk.click();
    }

    /** A relay that speaks while it renders. */
    async function startStreaming(): Promise<Target> {
      const streaming = await startNodeTarget({
        env: {
          RELAY_WEBAPI_URL: agent.url,
          OPENAI_API_KEY: 'sk-fake',
          OPENAI_BASE_URL: provider.url,
          RELAY_VOICE_OUTPUT_PROVIDER: 'openai_tts',
        },
      });
      onTestFinished(() => streaming.stop());
      await configure(streaming);
      return streaming;
    }

    /** Answers with `heard` for speech, and with a sound of this many seconds for text. */
    function provide(heard: string, seconds: number): void {
      provider.onCall((call) => {
        if (call.target.startsWith('/audio/transcriptions')) return call.answer(200, heard);
        call.answer(200, Buffer.from(wavOf(sinePcm(seconds, 24_000), 24_000)));
      });
    }

    it('hears a tap to talk, asks the agent and speaks its answer', async () => {
      provide('How late is it?', 0.3);
      const said: string[] = [];
      agent.onStream(async (exchange) => {
        said.push(JSON.parse(exchange.body).message);
        exchange.open();
        await exchange.event({ type: 'assistant.delta', delta: 'Half past two.' });
        await exchange.event({ type: 'run.completed' });
        exchange.end();
      });
      const page = await openVoice();
      const talk = page.getByRole('button', { name: 'Talk' });
      await talk.click();
      await page.getByText('Listening: let go or tap to send').waitFor();
      // Chromium's false microphone beeps.
      const loudness = page.getByRole('progressbar', { name: 'Loudness' });
      await expect.poll(async () => Number(await loudness.getAttribute('value'))).toBeGreaterThan(0);
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      await talk.click();
      await page.getByRole('article', { name: 'Agent' }).getByText('Half past two.').waitFor();
      await page.getByText('Hold to talk, or tap').waitFor();
      expect(said).toEqual(['How late is it?']);
      await expect.poll(() => provider.calls.length).toBe(2);
      const [heard, spoken] = provider.calls.splice(0);
      const clip = readForm(heard?.headers['content-type'], heard?.body ?? Buffer.of()).file;
      expect(clip.filename).toBe('audio.webm');
      expect(clip.content.length).toBeGreaterThan(100);
      expect(JSON.parse(String(spoken?.body))).toMatchObject({ input: 'Half past two.' });
      await expectAccessible(page);
    });

    it('sends what was held, and is interrupted while it speaks, by keyboard alone', async () => {
      provide('Tell me a story.', 60);
      agent.onStream(async (exchange) => {
        exchange.open();
        await exchange.event({ type: 'assistant.delta', delta: 'Once upon a time.' });
        await exchange.event({ type: 'run.completed' });
        exchange.end();
      });
      const page = await openVoice('localhost', { device: 'desktop' });
      const talk = page.getByRole('button', { name: 'Talk' });
      await talk.hover();
      await page.mouse.down();
      await page.getByText('Listening: let go or tap to send').waitFor();
      const loudness = page.getByRole('progressbar', { name: 'Loudness' });
      await expect.poll(async () => Number(await loudness.getAttribute('value'))).toBeGreaterThan(0);
      // Long enough to be held, not tapped.
      await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 450)));
      await page.mouse.up();
      await page.getByText('Speaking: tap to interrupt').waitFor();
      await page.getByRole('button', { name: 'Stop' }).focus();
      await page.keyboard.press('Enter');
      await page.getByText('Hold to talk, or tap').waitFor();
      await talk.focus();
      await page.keyboard.down('Space');
      await page.getByText('Listening: let go or tap to send').waitFor();
      await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 450)));
      await page.keyboard.up('Space');
      await page.getByText('Speaking: tap to interrupt').waitFor();
      await page.keyboard.press('Enter');
      await page.getByText('Listening: let go or tap to send').waitFor();
      await page.getByRole('link', { name: 'Home' }).click();
      await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
      await page.getByRole('link', { name: 'Voice' }).click();
      await page.getByText('Hold to talk, or tap').waitFor();
    });

    it('05 §12: speaks while the answer is rendered, and stops the render when it is interrupted', async () => {
      const streaming = await startStreaming();
      const renders: ProviderCall[] = [];
      provider.onCall(async (call) => {
        if (call.target.startsWith('/audio/transcriptions')) return call.answer(200, 'Tell me a story.');
        renders.push(call);
        call.begin({ 'content-type': 'audio/pcm' });
        await call.write(sinePcm(30, 24_000));
      });
      agent.onStream(async (exchange) => {
        exchange.open();
        await exchange.event({ type: 'assistant.delta', delta: 'Once upon a time.' });
        await exchange.event({ type: 'run.completed' });
        exchange.end();
      });
      const page = await openVoice('localhost', {}, streaming);
      await say(page);
      // The provider has not come to an end yet.
      await page.getByText('Speaking: tap to interrupt').waitFor();
      expect(renders.length).toBe(1);
      expect(renders[0]?.json()).toMatchObject({ input: 'Once upon a time.', response_format: 'pcm' });
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByText('Hold to talk, or tap').waitFor();
      await expect.poll(() => renders[0]?.isAbandoned).toBe(true);
      // Without any sound, the answer is spoken as a file.
      provider.onCall((call) => {
        if (call.target.startsWith('/audio/transcriptions')) return call.answer(200, 'And then?');
        if (call.json().response_format === 'pcm') return call.answer(500, 'broken');
        call.answer(200, Buffer.from(wavOf(sinePcm(60, 24_000), 24_000)));
      });
      await say(page);
      await page.getByText('Speaking: tap to interrupt').waitFor();
    });

    it('05 §11, §12: lets a person choose voice, rate and language, and hear them before', async () => {
      const streaming = await startStreaming();
      const renders: ProviderCall[] = [];
      provider.onCall(async (call) => {
        if (call.target.startsWith('/audio/transcriptions')) return call.answer(200, 'How late is it?');
        renders.push(call);
        call.begin({ 'content-type': 'audio/pcm' });
        await call.write(sinePcm(0.3, 24_000));
        call.end();
      });
      agent.onStream(async (exchange) => {
        exchange.open();
        await exchange.event({ type: 'assistant.delta', delta: 'Half past two.' });
        await exchange.event({ type: 'run.completed' });
        exchange.end();
      });
      const page = await openVoice('localhost', {}, streaming);
      await page.getByRole('button', { name: 'Voice settings' }).click();
      const dialog = page.getByRole('dialog', { name: 'Voice settings' });
      await dialog.getByRole('combobox', { name: 'Voice' }).selectOption('nova');
      await dialog.getByRole('combobox', { name: 'Speaking rate' }).selectOption('125');
      await dialog.getByRole('combobox', { name: 'Language of the answers' }).selectOption({ label: 'German' });
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      await dialog.getByRole('button', { name: 'Listen to it' }).click();
      const spoken = { voice: 'nova', speed: 1.25, response_format: 'pcm' };
      await expect
        .poll(() => renders.at(-1)?.json())
        .toMatchObject({ ...spoken, input: expect.stringMatching(/^Hello!/) });
      await dialog.getByRole('button', { name: 'Listen to it' }).waitFor();
      await dialog.getByRole('button', { name: 'Close' }).click();
      await page.reload();
      await connected(page);
      await say(page);
      await expect.poll(() => renders.at(-1)?.json()).toMatchObject({ ...spoken, input: 'Half past two.' });
      await page.getByRole('button', { name: 'Voice settings' }).click();
      await expect.poll(() => dialog.getByRole('combobox', { name: 'Voice' }).inputValue()).toBe('nova');
      renders.length = 0;
      provider.onCall((call) => call.answer(500, 'broken'));
      await dialog.getByRole('button', { name: 'Listen to it' }).click();
      await dialog.getByText('The provider has sent no sound. Look at the configuration of the relay.').waitFor();
      await expectAccessible(page);
    });

    it.runIf(canSpeak())('05 §18: lists the voices of a program of the owner, and speaks with it', async () => {
      const command = ['espeak-ng', '--stdout', '-v', '{voice}', '-s', '{words_per_minute}', '{text}'];
      const own = await startNodeTarget({
        env: { RELAY_WEBAPI_URL: agent.url, RELAY_VOICE_OUTPUT_PROVIDER: 'local_tts' },
      });
      onTestFinished(() => own.stop());
      const stt = { provider: 'openai', openai: { api_key: 'sk-fake', base_url: provider.url } };
      const tts = { provider: 'local', local: { command, voice: 'en' } };
      await writeFile(`${own.agentHome}/config.yaml`, JSON.stringify({ tts, stt }));
      provider.onCall((call) => call.answer(200, 'How late is it?'));
      agent.onStream(async (exchange) => {
        exchange.open();
        await exchange.event({ type: 'assistant.delta', delta: 'Half past two, and all is well at home.' });
        await exchange.event({ type: 'run.completed' });
        exchange.end();
      });
      const page = await openVoice('localhost', {}, own);
      await page.getByRole('button', { name: 'Voice settings' }).click();
      const dialog = page.getByRole('dialog', { name: 'Voice settings' });
      await dialog.getByRole('combobox', { name: 'Voice' }).selectOption({ label: 'German' });
      await dialog.getByRole('combobox', { name: 'Speaking rate' }).selectOption('150');
      await dialog.getByRole('button', { name: 'Listen to it' }).click();
      await dialog.getByRole('button', { name: 'Stop' }).waitFor();
      await dialog.getByRole('button', { name: 'Listen to it' }).waitFor();
      expect(await dialog.getByText('The provider has sent no sound').count()).toBe(0);
      await dialog.getByRole('button', { name: 'Close' }).click();
      await say(page);
      await page.getByText('Speaking: tap to interrupt').waitFor();
      await page.getByText('Hold to talk, or tap').waitFor();
    });

    it('says when nothing was heard', async () => {
      provide('', 1);
      const page = await openVoice();
      await say(page);
      const unheard = page.getByText('Nothing was heard. Speak closer to the microphone.');
      await unheard.waitFor();
      await expectAccessible(page);
      const asked = provider.calls.length;
      // A recording that ends before its first sound is empty.
      await page.evaluate(() => Object.defineProperty(MediaRecorder.prototype, 'ondataavailable', { set() {} }));
      await page.getByRole('button', { name: 'Talk' }).click();
      await page.getByText('Listening: let go or tap to send').waitFor();
      await unheard.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Talk' }).click();
      await unheard.waitFor();
      expect(provider.calls.length).toBe(asked);
    });

    it('09 §5: says on plain http why there is no microphone', async () => {
      const page = await openVoice('relay.test');
      await page.getByText('Browsers give the microphone to encrypted pages only').waitFor();
      await expectAccessible(page);
    });
  },
  ARGS,
);
