import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { createLink, type LinkChannel } from '../../lib/companion/link/link.ts';
import { createMediaClient } from '../../lib/companion/link/media.ts';
import { withMailbox, withRoutes } from '../../lib/companion/link/new-routes.ts';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { createSealing } from '../../lib/companion/link/sealing.ts';
import { openSettings } from '../../lib/companion/link/settings.ts';
import { createMessages, type ReceivedMessage } from '../../lib/companion/messages.ts';
import type { UploadFile } from '../../lib/companion/types.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { createPinnedConnector } from '../../lib/host/node/pinned.ts';
import { createCallRelay } from '../../lib/host/node/relay-call.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { fastClock } from './companion.ts';
import { createTestLog } from './log.ts';
import { post, randomCode } from './relay.ts';

export interface MailboxDeviceOptions {
  name: string;
  /** Has a key, so that its mailbox is sealed. */
  isKeyed: boolean;
  /** Home, where its code is registered. */
  home: { url: string; wsUrl: string };
  /** URL of home's socket as this device knows it, such as that of a proxy. */
  wsUrl?: string;
  /** Answer of `svc relay mirror status --json` at home. */
  mirrorStatus(): Promise<{ mailbox: { sealed: boolean; plain: { name: string }[] } }>;
  /** A message was shown, which the device may answer by then. */
  onShown?(message: ReceivedMessage): void;
}

export type MailboxDevice = Awaited<ReturnType<typeof pairMailboxDevice>>;

/**
 * A companion that was paired at a home with a mirror, and has left once home counts with it. Its routes are home and the
 * mailbox.
 */
export async function pairMailboxDevice(options: MailboxDeviceOptions) {
  const { name, isKeyed, home, wsUrl = home.wsUrl, mirrorStatus, onShown } = options;
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, 'settings.json');
  const settings = await openSettings({ files: createFiles(), path, clock: systemClock });
  await settings.update({ messagesEnabled: true });
  const code = randomCode();
  const registered = await fetch(`${home.url}/pairing/register`, post({ code }));
  expect(registered.status).toBe(200);
  const log = createTestLog();
  const shown: ReceivedMessage[] = [];
  const acknowledged: string[] = [];
  const messages = createMessages({
    settings,
    clock: systemClock,
    log,
    onMessage(message) {
      shown.push(message);
      onShown?.(message);
      return true;
    },
    onBacklog: () => {},
    onAcknowledged: (reply) => void acknowledged.push(reply.message_id),
    onClosed: () => {},
    onSubscribed: () => {},
  });
  let notify: (payload: Record<string, unknown>) => void = () => {};
  const notifications: LinkChannel = {
    online(send) {
      notify = (payload) => send('notification.posted', payload as never);
      return () => {};
    },
    message() {},
  };
  const sealing = isKeyed ? createSealing({ store: settings, log }) : undefined;
  let link: ReturnType<typeof createLink> | undefined;
  const connect = (offer?: ReturnType<typeof parsePairing>) => {
    link = createLink({
      dial,
      callRelay: createCallRelay(createPinnedConnector()),
      store: settings,
      clock: fastClock(10),
      log,
      device: { name },
      channels: { proactive: messages.channel, notifications },
      withRoutes,
      withMailbox,
      sealing: sealing && (() => sealing),
      offer,
    });
    link.start();
    return link;
  };
  const leave = async () => link?.stop();
  onTestFinished(async () => leave());
  const paired = connect(parsePairing(JSON.stringify({ svc: 1, relay: { url: wsUrl, code } })));
  await expect.poll(() => settings.pairing()?.mailbox?.session_token).toBeTruthy();
  await expect.poll(() => paired.state.name).toBe('online');
  // Home counts with the device now: one that left before would get nothing that it can read while home is off.
  const isCounted = async () => {
    const { sealed, plain } = (await mirrorStatus()).mailbox;
    return isKeyed ? sealed : plain.some((each) => each.name === name);
  };
  await expect.poll(isCounted).toBe(true);
  await leave();
  const { upload, fetchMedia } = createMediaClient({
    callRelay: createCallRelay(createPinnedConnector()),
    store: settings,
    clock: systemClock,
    sealing,
  });
  return {
    log,
    fetchMedia,
    /** Uploads a file, and returns its token. */
    async upload(file: UploadFile): Promise<string> {
      const answer = await upload(file);
      if (!('token' in answer)) throw new Error(`the relay answered ${answer.status}`);
      return answer.token;
    },
    shown,
    acknowledged,
    messages,
    settings,
    notify: (payload: Record<string, unknown>) => notify(payload),
    connect: () => connect(),
    leave,
  };
}
