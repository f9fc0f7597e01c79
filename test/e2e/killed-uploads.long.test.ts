import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { startRelayProcess, temporaryHome } from '../support/process.ts';

it('what a killed relay has received of uploads is gone when the next one runs', async () => {
  const home = await temporaryHome();
  const temporary = join(home, 'tmp');
  await mkdir(temporary);
  const uploads = async () => (await readdir(temporary)).filter((name) => name.startsWith('svc-relay-'));
  const relay = await startRelayProcess({ home, env: { TMPDIR: temporary, RELAY_PAIRING_CODE: 'ABC123' } });
  const { frame, socket } = await relay.offer({ pairing_code: 'ABC123', device_id: 'phone', device_name: 'Phone' });
  onTestFinished(() => socket.terminate());
  for (const path of ['/media/upload', '/voice/transcribe']) {
    const upload = connect({ host: '127.0.0.1', port: relay.port }).on('error', () => {});
    onTestFinished(() => void upload.destroy());
    const lines = [
      `POST ${path} HTTP/1.1`,
      `host: 127.0.0.1:${relay.port}`,
      `authorization: Bearer ${frame.payload.session_token}`,
      'content-type: multipart/form-data; boundary=b',
      'content-length: 8000000',
      '',
      '--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n',
      'x'.repeat(1_000_000),
    ];
    upload.write(lines.join('\r\n'));
  }
  await expect.poll(uploads).toHaveLength(2);
  const { pid } = relay.child;
  await relay.kill('SIGKILL');
  expect(await uploads()).toHaveLength(2);

  // A write that the kill interrupted, and files that no killed relay has left.
  const temporaryOf = (writer: number) => `.svc-relay-${writer}-${'0'.repeat(24)}.tmp`;
  const uploadOf = (writer: number) =>
    `svc-relay-upload-${writer.toString(36).padStart(6, '0')}zz${'a'.repeat(16)}.png`;
  const state = join(home, 'svc-relay');
  await writeFile(join(state, temporaryOf(pid)), 'x');
  await writeFile(join(state, temporaryOf(process.pid)), 'of a running process');
  await writeFile(join(temporary, uploadOf(process.pid)), 'of a running relay');
  await writeFile(join(temporary, 'svc-relay-upload-of-another-program.png'), 'x');
  await relay.restart();
  await expect
    .poll(async () => (await uploads()).toSorted())
    .toEqual([uploadOf(process.pid), 'svc-relay-upload-of-another-program.png'].toSorted());
  await expect
    .poll(async () => (await readdir(state)).filter((name) => name.endsWith('.tmp')))
    .toEqual([temporaryOf(process.pid)]);
});
