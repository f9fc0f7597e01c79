import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair } from '../support/relay.ts';
import { sinePcm, wavOf } from '../support/voice/audio.ts';
import { leftClips } from '../support/voice/clips.ts';
import { readForm } from '../support/voice/form.ts';
import { clipForm, PROVIDER_KEY, startVoice } from '../support/voice/relay.ts';

const MiB = 1024 * 1024;

const WAV = wavOf(sinePcm(0.5, 16_000), 16_000);
const form = (parts: string) => ({
  body: parts.replaceAll('\n', '\r\n'),
  headers: { 'content-type': 'multipart/form-data; boundary=b' },
});

describeMatrix('POST /voice/transcribe (contract 05 §6)', (start, runtime) => {
  it('transcribes the audio part, and answers with the provider and the profile', async () => {
    const { provider, transcribe } = await startVoice(start);
    provider.onCall((call) => call.answer(200, ' good morning\n'));
    const response = await transcribe(clipForm(WAV));
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/json']);
    expect(await response.json()).toEqual({ success: true, text: 'good morning', provider: 'openai', profile: null });
    const [call] = provider.calls;
    expect(call?.headers.authorization).toBe(`Bearer ${PROVIDER_KEY}`);
    expect(call?.target).toBe('/audio/transcriptions');
    const sent = readForm(call?.headers['content-type'], call?.body ?? Buffer.of());
    expect(sent.file).toEqual({
      name: 'file',
      filename: 'audio.wav',
      contentType: 'audio/wav',
      content: Buffer.from(WAV),
    });
    expect(sent.fields).toEqual([
      ['model', 'whisper-1'],
      ['response_format', 'text'],
    ]);
  });

  it.each([
    ['phone, mp4', { type: 'audio/mp4', file: 'x' }, 'audio.m4a'],
    ['phone, octets', { type: 'application/octet-stream', file: 'recording.m4a' }, 'audio.m4a'],
    ['desktop', { type: 'audio/webm;codecs=opus', file: 'voice.webm' }, 'audio.webm'],
    ['another name', { name: 'clip', type: '', file: 'voice.ogg' }, 'audio.ogg'],
  ])('takes what clients send: %s', async (_name, part, filename) => {
    const { provider, transcribe } = await startVoice(start);
    provider.onCall((call) => call.answer(200, { text: 'hi' }));
    const body = clipForm(WAV, part);
    body.append('note', 'ignored');
    expect((await transcribe(body, { query: '?profile=nobody' })).status).toBe(200);
    const [call] = provider.calls;
    expect(readForm(call?.headers['content-type'], call?.body ?? Buffer.of()).file.filename).toBe(filename);
  });

  it('answers silence with an empty text', async () => {
    const { provider, transcribe } = await startVoice(start);
    provider.onCall((call) => call.answer(200, ''));
    const response = await transcribe(clipForm(WAV));
    expect([response.status, await response.json()]).toMatchObject([200, { success: true, text: '' }]);
  });

  it.each([
    ['no form', { body: '{}', headers: { 'content-type': 'application/json' } }, 'multipart'],
    ['no boundary', { body: 'x', headers: { 'content-type': 'multipart/form-data' } }, 'boundary'],
    ['a form that breaks off', form('--b\nContent-Disposition: form-data; name="audio"\n\nRIFF'), 'not complete'],
    ['no audio', form('--b\nContent-Disposition: form-data; name="note"\n\nx\n--b--\n'), 'no audio'],
    ['no bytes', form('--b\nContent-Disposition: form-data; name="audio"\n\n\n--b--\n'), 'empty'],
  ])('refuses a body with 400 as JSON: %s', async (_name, { body, headers }, message) => {
    const { provider, transcribe } = await startVoice(start);
    const response = await transcribe(body, { headers });
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ success: false, error: expect.stringContaining(message) });
    expect(provider.calls).toHaveLength(0);
  });

  it('reports a failing provider with 500, its name, and no secret', async () => {
    const { provider, transcribe, target } = await startVoice(start);
    provider.onCall((call) => call.answer(401, { error: { message: `bad key ${PROVIDER_KEY}` } }));
    const response = await transcribe(clipForm(WAV));
    expect(response.status).toBe(500);
    expect(await response.json()).toEqual({
      success: false,
      error: 'openai answered HTTP 401: bad key <redacted>',
      provider: 'openai',
    });
    expect(target.log.join('\n')).not.toContain(PROVIDER_KEY);
  });

  it('wants the grant, and says so in text before anything else', async () => {
    const { target } = await startVoice(start);
    const { token } = await pair(target, { policy: { grants: { 'voice:stt': 0.001 }, without: ['voice:stt'] } });
    const call = (headers: Record<string, string>) =>
      target.fetch('/voice/transcribe', { method: 'POST', body: 'x', headers });
    const refused = await call(bearer(token));
    expect([refused.status, await refused.text()]).toEqual([403, expect.stringContaining('voice:stt')]);
    const stranger = await call({});
    expect(stranger.status).toBe(401);
    expect(stranger.headers.get('content-type')).toContain('text/plain');
    const wrong = await target.fetch('/voice/transcribe', { headers: bearer(token) });
    expect(wrong.status).toBe(405);
  });

  if (runtime === 'node') {
    it('answers 413 while the client is still sending', async () => {
      const { target, token } = await startVoice(start);
      const socket = connect(Number(new URL(target.url).port), '127.0.0.1');
      let answer = '';
      socket.setEncoding('utf8').on('data', (text) => {
        answer += text;
      });
      socket.on('error', () => {});
      const head = '--b\r\nContent-Disposition: form-data; name="audio"\r\n\r\n';
      socket.write(
        `POST /voice/transcribe HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\n` +
          `Content-Type: multipart/form-data; boundary=b\r\nContent-Length: ${26 * MiB}\r\n\r\n${head}`,
      );
      const chunk = Buffer.alloc(MiB);
      for (let sent = 0; sent < 25; sent++) await new Promise((resolve) => socket.write(chunk, resolve));
      expect(answer).toBe('');
      // Over the limit by more than the parser may hold back, and then no more: the client is not done.
      socket.write('x'.repeat(1024));
      await expect.poll(() => answer).toMatch(/^HTTP\/1\.1 413 [\s\S]*"success":false/);
      socket.destroy();
      await expect.poll(leftClips).toEqual([]);
    });

    it('aborts the call to the provider when the client hangs up, and leaves nothing', async () => {
      const { provider, transcribe } = await startVoice(start);
      const hangUp = new AbortController();
      const waiting = transcribe(clipForm(WAV), { signal: hangUp.signal }).catch(() => {});
      const call = await provider.call(0);
      expect(await leftClips()).toHaveLength(1);
      hangUp.abort();
      await waiting;
      await expect.poll(() => call.isAbandoned).toBe(true);
      await expect.poll(leftClips).toEqual([]);
    });

    it('uses the stt section of the profile that the query names', async () => {
      const { provider, transcribe, configure, section, target } = await startVoice(start);
      provider.onCall((call) => call.answer(200, 'x'));
      const { mkdir, writeFile } = await import('node:fs/promises');
      await mkdir(`${target.agentHome}/profiles/work`, { recursive: true });
      const work = { stt: { ...section, language: 'de' } };
      await writeFile(`${target.agentHome}/profiles/work/config.yaml`, JSON.stringify(work));
      await configure({ stt: { ...section, enabled: false } });
      const answer = await transcribe(clipForm(WAV), { query: '?profile=work' });
      expect(await answer.json()).toMatchObject({ success: true, profile: 'work' });
      const [call] = provider.calls;
      expect(readForm(call?.headers['content-type'], call?.body ?? Buffer.of()).fields).toContainEqual([
        'language',
        'de',
      ]);
      const disabled = await transcribe(clipForm(WAV));
      expect([disabled.status, await disabled.json()]).toEqual([
        500,
        { success: false, error: expect.stringContaining('disabled') },
      ]);
    });

    it('needs a key at the address of a provider, which is not asked without one (§18)', async () => {
      const { transcribe, configure } = await startVoice(start);
      await configure({ stt: { provider: 'mistral' } });
      const response = await transcribe(clipForm(WAV));
      expect(response.status).toBe(500);
      expect(await response.json()).toMatchObject({
        success: false,
        error: expect.stringContaining('no API key available'),
      });
    });
  }
});
