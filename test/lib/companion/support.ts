import type { Device, Rect, UiNode, UiWindow } from '../../../lib/companion/device.ts';
import { createPhone, type PhoneDeps } from '../../../lib/companion/phone.ts';
import type { SafetySettings, SettingsStore } from '../../../lib/companion/safety-settings.ts';
import { defaultSettings, PERMANENT, TIMED } from '../../../lib/companion/safety-settings.ts';
import type { Decision, PhoneAnswer, Question } from '../../../lib/companion/types.ts';
import { createSimulatedDevice } from '../../../lib/simulated/device.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

export function createMemorySettings(change: Partial<SafetySettings> = {}): SettingsStore {
  let settings: SafetySettings = { ...defaultSettings(), ...change };
  const listeners = new Set<(settings: SafetySettings) => void>();
  return {
    get: () => settings,
    async update(change) {
      settings = { ...settings, ...change, triggers: { ...settings.triggers, ...change.triggers } };
      for (const listener of listeners) listener(settings);
    },
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

/** Everything granted without an end, master toggle on. */
export const ALLOWED: Partial<SafetySettings> = {
  masterEnabled: true,
  policy: 'bound',
  capabilities: Object.fromEntries([...PERMANENT, ...TIMED].map((id) => [id, null])),
};

/** The body of a denial (contract 03 §8.4). */
export const DENIAL = {
  error: 'user denied destructive action',
  reason: 'confirmation_denied_or_timeout',
  error_code: 'user_denied',
  status: 'blocked',
  android_result: 'user_denied',
  final: true,
};

export const BANK = 'com.chase.sig.android';

/** A person who answers with `answer` and records the questions. `later` leaves them open. */
export function createPerson(answer: Decision | 'later' = true) {
  const asked: Question[] = [];
  const open: ((decision: Decision) => void)[] = [];
  const person = {
    answer,
    asked,
    open,
    confirm: (question: Question) => {
      asked.push(question);
      return person.answer === 'later'
        ? new Promise<Decision>((resolve) => open.push(resolve))
        : Promise.resolve(person.answer);
    },
  };
  return person;
}

export type Result = Record<string, unknown> & { error?: string };

/** A simulated phone with everything allowed, unless `change` says otherwise. */
export function createTestPhone(
  change: Partial<SafetySettings> = {},
  deps: Partial<PhoneDeps> & { answer?: Decision | 'later' } = {},
) {
  const clock = createTestClock();
  const simulated = createSimulatedDevice({ clock: deps.clock ?? clock });
  const person = createPerson(deps.answer ?? true);
  const settings = createMemorySettings({ ...ALLOWED, ...change });
  const log = createTestLog();
  const { answer: _, ...rest } = deps;
  const phone = createPhone({ device: simulated, settings, confirm: person.confirm, clock, log, ...rest });
  let ids = 0;
  const call = async (method: string, path: string, body: Record<string, unknown> = {}) => {
    const command = { requestId: `r${++ids}`, method: method as 'GET', path, body };
    return (await phone.handle(command)) as PhoneAnswer & { result: Result };
  };
  /** The body of a 200; anything else fails the test. */
  const ok = async (method: string, path: string, body: Record<string, unknown> = {}) => {
    const answer = await call(method, path, body);
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${JSON.stringify(answer.result)}`);
    return answer.result;
  };
  return { clock, device: simulated, system: simulated.system, person, settings, log, phone, call, ok };
}

export const rect = (left: number, top: number, right: number, bottom: number): Rect => ({ left, top, right, bottom });

/** A plain node with the given changes. */
export const uiNode = (change: Partial<UiNode> = {}): UiNode => ({
  ref: crypto.randomUUID(),
  className: 'android.view.View',
  text: null,
  contentDescription: null,
  hintText: null,
  viewId: null,
  bounds: rect(0, 0, 100, 100),
  clickable: false,
  longClickable: false,
  focusable: false,
  focused: false,
  editable: false,
  scrollable: false,
  checkable: false,
  checked: false,
  enabled: true,
  selected: false,
  password: false,
  children: [],
  ...change,
});

/** A device that shows these windows and records the actions on them. */
export function createStaticDevice(windows: () => UiWindow[], change: Partial<Device> = {}) {
  const clicked: UiNode[] = [];
  const longClicked: UiNode[] = [];
  const typed: { node: UiNode; text: string }[] = [];
  const gestures: Parameters<Device['gesture']>[0][] = [];
  const device: Device = {
    ...createSimulatedDevice({ clock: createTestClock() }),
    windows: async () => windows(),
    click: async (node) => clicked.push(node) > 0,
    longClick: async (node) => longClicked.push(node) > 0,
    setText: async (node, text) => typed.push({ node, text }) > 0,
    gesture: async (gesture) => gestures.push(gesture) > 0,
    ...change,
  };
  return { device, clicked, longClicked, typed, gestures };
}

/** A phone with a single window. */
export function createStaticPhone(root: UiNode, change: Partial<Device> = {}) {
  const done = createStaticDevice(() => [{ packageName: 'org.example.app', root }], change);
  return { ...done, ...createTestPhone({}, { device: done.device }) };
}
