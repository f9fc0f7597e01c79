import { join } from 'node:path';
import { createClipboardInbox } from '../../../lib/clipboard/inbox.ts';
import type { HostFiles } from '../../../lib/host/index.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestHost } from '../../support/host.ts';
import { createTestLog } from '../../support/log.ts';
import { temporaryDirectory } from '../../support/temp.ts';

export const PNG = Buffer.from('\x89PNG\r\n\x1a\nrest', 'latin1');

export async function setup(overrides: Partial<HostFiles> = {}) {
  const home = await temporaryDirectory();
  const clock = createTestClock(Date.now());
  const host = createTestHost({ agentHome: home });
  const log = createTestLog();
  return {
    home,
    clock,
    log,
    directory: join(home, 'images/inbox'),
    inbox: createClipboardInbox({ host: { ...host, files: { ...host.files, ...overrides } }, clock, log }),
  };
}

export const image = (format: string, bytes: Buffer, filenameHint?: string) => ({
  format,
  bytesBase64: bytes.toString('base64'),
  filenameHint,
});
