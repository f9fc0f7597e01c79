import { createBridge } from '../../lib/companion/link/commands.ts';
import { createLink } from '../../lib/companion/link/link.ts';
import { createMediaClient } from '../../lib/companion/link/media.ts';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { openSettings } from '../../lib/companion/link/settings.ts';
import { createMessages, type ReceivedMessage } from '../../lib/companion/messages.ts';
import { createPhone } from '../../lib/companion/phone.ts';
import { PERMANENT, TIMED } from '../../lib/companion/safety-settings.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { type Clock, systemClock } from '../../lib/kit/clock.ts';
import { createLog as createLines } from '../../lib/log.ts';
import { createSimulatedDevice } from '../../lib/simulated/device.ts';
import { newCode, type Stage } from './stage.ts';

/** The link notices a dead connection, and tries again, this many times as fast as a phone that saves its battery. */
const SPEED = 4;
const PAIR_TIMEOUT = 20_000;

/** A faster clock for the link only; timestamps stay those of this machine. */
const impatient: Clock = {
  now: systemClock.now,
  monotonic: () => systemClock.monotonic() * SPEED,
  after: (delay, run) => systemClock.after(delay / SPEED, run),
};

export interface PhoneEvents {
  /** A message came over the wire, also one that the owner has seen before. */
  arrived(messageId: string): void;
  /** The owner sees a message. */
  shown(message: ReceivedMessage): void;
  /** The relay has acknowledged a reply. */
  acknowledged(replyId: string): void;
  /** The phone executes a command. */
  commanded(text: string): void;
  /** The relay has ended the pairing. */
  unpaired(reason: string): void;
}

export type DrillPhone = Awaited<ReturnType<typeof startPhone>>;

/** Pairs the companion, with everything granted, and starts it. It is the phone of `svc companion run`. */
export async function startPhone(stage: Stage, folder: string, events: PhoneEvents) {
  const settings = await openSettings({ files: createFiles(), path: `${folder}/companion.json`, clock: systemClock });
  const log = createLines('ERROR', () => {});
  const device = createSimulatedDevice({ clock: systemClock, name: 'Drill phone' });
  const { writeClipboard } = device;
  device.writeClipboard = (text, label) => {
    events.commanded(text);
    return writeClipboard(text, label);
  };
  const confirm = async () => true;
  const phone = createPhone({ device, settings, confirm, clock: systemClock, log, autoReturnMs: null });
  const messages = createMessages({
    settings,
    clock: systemClock,
    log,
    onMessage(message) {
      events.shown(message);
      return true;
    },
    onBacklog() {},
    onAcknowledged: (reply) => events.acknowledged(reply.message_id),
    onClosed() {},
    onSubscribed() {},
  });
  const { channel } = messages;
  let settlePairing = (_refusal: string | null) => {};
  const paired = new Promise<string | null>((resolve) => {
    settlePairing = resolve;
  });
  const link = createLink({
    dial,
    store: settings,
    clock: impatient,
    log,
    device: { name: 'Drill phone' },
    bridge: createBridge({ phone, clock: impatient }),
    channels: {
      proactive: {
        online: channel.online,
        message(message) {
          if (message.type === 'phone.message') events.arrived(String(message.payload.message_id));
          channel.message(message);
        },
      },
    },
    offer: parsePairing(JSON.stringify({ svc: 1, relay: { url: stage.url, code: await newCode(stage) } })),
    isAttended: () => true,
    onState(state) {
      if (state.name === 'online') settlePairing(null);
      if (state.name === 'waiting' && state.rateLimited) void stage.lift().then(() => link.start());
      if (state.name !== 'unpaired') return;
      settlePairing(state.reason ?? 'no reason given');
      events.unpaired(state.reason ?? 'no reason given');
    },
  });
  const cancel = systemClock.after(PAIR_TIMEOUT, () => settlePairing('no answer'));
  link.start();
  const refusal = await paired;
  cancel();
  const stop = async () => {
    await link.stop();
    messages.close();
    phone.close();
  };
  if (refusal !== null) {
    await stop();
    throw new Error(`the companion cannot be paired: ${refusal}`);
  }
  await settings.update({
    masterEnabled: true,
    messagesEnabled: true,
    capabilities: Object.fromEntries([...PERMANENT, ...TIMED].map((id) => [id, null])),
  });
  return {
    /** Replies to a message, and returns the id of the reply; null when too many wait for the relay. */
    reply(messageId: string, text: string): string | null {
      try {
        return messages.reply({ text, replyTo: messageId, chatId: null }).message_id;
      } catch {
        return null;
      }
    },
    /** The state of its link: `online`, or the state with its reason. */
    state(): string {
      const { state } = link;
      return 'reason' in state && state.reason !== undefined ? `${state.name}: ${state.reason}` : state.name;
    },
    media: createMediaClient({ callRelay: stage.callRelay, store: settings, clock: systemClock }),
    stop,
  };
}
