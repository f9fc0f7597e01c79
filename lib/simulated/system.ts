import type { Contact, Fix, Intent, ShareRequest, SmsResult } from '../companion/device.ts';
import type { Clock } from '../kit/clock.ts';

export interface Message {
  from: 'me' | 'them';
  text: string;
  /** Epoch ms. */
  at: number;
}

export interface Thread {
  number: string;
  messages: Message[];
}

export interface Notification {
  package: string;
  title: string;
  text: string;
}

/** State shared by all apps of the simulated phone. Messages and calls are recorded here and go nowhere. */
export interface System {
  clock: Clock;
  contacts: Contact[];
  threads: Thread[];
  /** Messages "sent" through the bridge or by a tap. */
  outbox: { to: string; text: string; at: number }[];
  calls: { number: string; at: number }[];
  clipboard: { text: string; label: string };
  notifications: Notification[];
  media: { playing: boolean; track: number; volume: number };
  location: Fix | null;
  intents: Intent[];
  broadcasts: Intent[];
  shares: ShareRequest[];
  /** Android permissions that the owner denied. */
  denied: Set<string>;
  /** The carrier's result for the next messages; `silent` never answers. */
  carrier: SmsResult | 'silent';
  wifi: boolean;
  darkTheme: boolean;
  batteryPercent: number;
  screenOn: boolean;
  locked: boolean;
  /** True if the keyguard needs a PIN, so that a swipe does not open it. */
  credential: boolean;
  accessibility: boolean;
}

const contact = (id: string, name: string, ...phones: [string, string, string?][]): Contact => ({
  id,
  name,
  phones: phones.map(([number, type, label]) => ({ number, type, label: label ?? type })),
});

export function createSystem(clock: Clock): System {
  const ago = (minutes: number) => clock.now() - minutes * 60_000;
  return {
    clock,
    contacts: [
      contact('1', 'Ada Lovelace', ['+15550102', 'work'], ['+15550101', 'mobile'], ['+15550109', 'other', 'Watch']),
      contact('2', 'Alan Turing', ['+15550110', 'home'], ['+15550111', 'main']),
      contact('3', 'Grace Hopper', ['+15550120', 'mobile']),
      contact('4', 'Katherine Johnson', ['+15550131', 'work', 'Work fax'], ['+15550130', 'home']),
      contact('5', 'Margaret Hamilton', ['+15550140', 'mobile']),
    ],
    threads: [
      { number: '+15550101', messages: [{ from: 'them', text: 'Tea at four?', at: ago(55) }] },
      { number: '+15550120', messages: [{ from: 'them', text: 'Found the bug. It had wings.', at: ago(600) }] },
    ],
    outbox: [],
    calls: [],
    clipboard: { text: '', label: '' },
    notifications: [{ package: 'com.android.messaging', title: 'Ada Lovelace', text: 'Tea at four?' }],
    media: { playing: false, track: 1, volume: 50 },
    location: {
      latitude: 51.4769,
      longitude: -0.0005,
      accuracy: 12,
      provider: 'fused',
      timestamp: ago(1),
      altitude: 46,
    },
    intents: [],
    broadcasts: [],
    shares: [],
    denied: new Set(),
    carrier: 'RESULT_OK',
    wifi: true,
    darkTheme: false,
    batteryPercent: 87,
    screenOn: true,
    locked: false,
    credential: false,
    accessibility: true,
  };
}

/** Maximum length of every list that commands can add to. */
const MAX_ENTRIES = 200;

/** Adds an item at the end and drops the oldest ones beyond `limit`. */
export function append<T>(list: T[], item: T, limit = MAX_ENTRIES): void {
  list.push(item);
  if (list.length > limit) list.splice(0, list.length - limit);
}

/** Adds an item at the front and drops the oldest ones beyond `limit`. */
export function prepend<T>(list: T[], item: T, limit = MAX_ENTRIES): void {
  list.unshift(item);
  if (list.length > limit) list.length = limit;
}

/** The name of the contact with that number, or the number itself. */
export const nameOf = ({ contacts }: System, number: string): string =>
  contacts.find(({ phones }) => phones.some((phone) => phone.number === number))?.name ?? number;

/** Adds a message to its thread and moves the thread to the top. */
export function record(system: System, number: string, message: Message): void {
  const thread = system.threads.find((one) => one.number === number) ?? { number, messages: [] };
  append(thread.messages, message);
  system.threads = [thread, ...system.threads.filter((one) => one !== thread)].slice(0, MAX_ENTRIES);
}

/** "Sends" a message: records it in the outbox and in its thread. */
export function sendMessage(system: System, to: string, text: string): void {
  const at = system.clock.now();
  append(system.outbox, { to, text, at });
  record(system, to, { from: 'me', text, at });
}

/** Switches a setting, and reports that. */
export const flip = (system: System, name: 'wifi' | 'darkTheme', changed: () => void) => () => {
  system[name] = !system[name];
  changed();
};
