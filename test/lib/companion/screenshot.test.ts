import { inflateSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { PhoneDeps } from '../../../lib/companion/phone.ts';
import type { UploadFile } from '../../../lib/companion/types.ts';
import { createStaticDevice, createTestPhone } from './support.ts';

/** A phone with a recorded upload. */
function phoneThatUploads(deps: Partial<PhoneDeps> = {}) {
  const files: UploadFile[] = [];
  const upload = async (file: UploadFile) => ({ token: `t${files.push(file)}` });
  return { ...createTestPhone({}, { upload, autoReturnMs: null, ...deps }), files };
}
const withCapture = (screenshot: () => Promise<Uint8Array>) => createStaticDevice(() => [], { screenshot }).device;
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('/screenshot (contract 03 §7)', () => {
  it('uploads a PNG of the screen, named after the time, and answers with its token', async () => {
    const phone = phoneThatUploads();
    expect(await phone.ok('GET', '/screenshot')).toEqual({ media: 'MEDIA:svc-relay://t1' });
    const [file] = phone.files;
    expect(file).toMatchObject({ name: `svc-screenshot-${phone.clock.now()}.png`, type: 'image/png' });
    const bytes = Buffer.from(file?.bytes ?? []);
    expect(bytes.subarray(0, 8)).toEqual(Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'));
    const [width, height, length] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20), bytes.readUInt32BE(33)];
    expect([width, height]).toEqual([270, 585]);
    expect(inflateSync(bytes.subarray(41, 41 + length)).length).toBe((width + 1) * height);
    expect(phone.phone.activity()[0]).toMatchObject({ thumbnailToken: 't1' });
  });

  it('answers 503 without an upload or a capture', async () => {
    const expected = {
      status: 503,
      result: { error_code: 'service_unavailable', required_action: expect.any(String) },
    };
    expect(await createTestPhone().call('GET', '/screenshot')).toMatchObject(expected);
    const device = createStaticDevice(() => [], { screenshot: undefined }).device;
    expect(await phoneThatUploads({ device }).call('GET', '/screenshot')).toMatchObject(expected);
  });

  it.each([
    [401, /pair it again/],
    [403, /pair it again/],
    [404, /too old/],
    [413, /too large/],
    [507, /507/],
  ])('answers 500 when the relay answers the upload with %i', async (status, error) => {
    const answer = await phoneThatUploads({ upload: async () => ({ status }) }).call('GET', '/screenshot');
    expect(answer).toMatchObject({ status: 500, result: { error: expect.stringMatching(error) } });
  });

  it('answers 500 when the upload takes longer than 15 s', async () => {
    let answer: ReturnType<ReturnType<typeof createTestPhone>['call']> | undefined;
    let phone = createTestPhone();
    await new Promise<void>((resolve) => {
      const upload = () => {
        resolve();
        return new Promise<never>(() => {});
      };
      phone = phoneThatUploads({ upload });
      answer = phone.call('GET', '/screenshot');
    });
    await settle();
    await phone.clock.advanceAsync(15_000);
    expect(await answer).toMatchObject({ status: 500, result: { error: expect.stringContaining('timed out') } });
    expect(phone.clock.pending).toBe(0);
  });

  it('tries twice, 10 s each', async () => {
    let attempts = 0;
    const never = phoneThatUploads({
      device: withCapture(() => {
        attempts++;
        return new Promise(() => {});
      }),
    });
    const answer = never.call('GET', '/screenshot');
    await never.clock.advanceAsync(10_000);
    await never.clock.advanceAsync(10_000);
    expect(await answer).toMatchObject({ status: 500 });
    expect(attempts).toBe(2);
    const once = phoneThatUploads({
      device: withCapture(async () => {
        if (attempts++ === 2) throw new Error('busy');
        return new Uint8Array(3);
      }),
    });
    expect(await once.ok('GET', '/screenshot')).toEqual({ media: 'MEDIA:svc-relay://t1' });
  });

  it('captures one at a time, and skips one whose caller has given up meanwhile', async () => {
    const release: ((bytes: Uint8Array) => void)[] = [];
    const phone = phoneThatUploads({
      captureTimeoutMs: 30_000,
      device: withCapture(() => new Promise((resolve) => release.push(resolve))),
    });
    const answers = [phone.call('GET', '/screenshot'), phone.call('GET', '/screenshot')];
    await settle();
    expect(release).toHaveLength(1);
    release[0]?.(new Uint8Array(3));
    expect((await answers[0])?.status).toBe(200);
    await settle();
    expect(release).toHaveLength(2);
    const late = phone.call('GET', '/screenshot');
    await settle();
    phone.clock.advance(29_001);
    release[1]?.(new Uint8Array(3));
    expect((await answers[1])?.status).toBe(200);
    expect((await late).status).toBe(403);
    expect(release).toHaveLength(2);
  });
});
