import { type Device, DeviceFailure, type UiEvent } from '../companion/device.ts';
import type { PostedNotification } from '../companion/triggers.ts';
import type { Clock } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import { encodePng } from '../kit/png.ts';
import { APPS } from './apps/index.ts';
import { COMPANION } from './apps/system.ts';
import { drawFrames, SCREEN } from './layout.ts';
import { createShell } from './shell.ts';
import { append, createSystem, nameOf, prepend, record, type System, sendMessage } from './system.ts';
import { createTouch } from './touch.ts';

export interface SimulatedDevice extends Device {
  /** The state of the phone, for tests to inspect and change. */
  system: System;
  /** Delivers a text message: adds it to its thread and shows a notification. */
  receiveSms(number: string, text: string): void;
  /** Shows a notification of an app. */
  post(notification: PostedNotification): void;
}

/** Volume change in percent, keyed by Android key code. */
const VOLUME_STEPS: Record<number, number> = { 24: 10, 25: -10 };

/** An Android-like phone in memory. Nothing leaves it: messages, calls and intents are recorded in `system`. */
export function createSimulatedDevice(options: { clock: Clock; name?: string }): SimulatedDevice {
  const { clock, name = 'Simulated phone' } = options;
  const system = createSystem(clock);
  const events = createEvent<[event: UiEvent]>();
  const notifications = createEvent<[notification: PostedNotification]>();
  const shell = createShell(system, APPS, events.emit);
  const touch = createTouch(system, shell);

  function requirePermission(permission: string): void {
    const full = `android.permission.${permission}`;
    if (system.denied.has(full)) throw new DeviceFailure('permission_denied', `${full} is not granted`, full);
  }

  function setVolume(level: number): void {
    system.media.volume = Math.min(Math.max(level, 0), 100);
  }

  function mediaKey(keycode: number): void {
    const { media } = system;
    const step = VOLUME_STEPS[keycode];
    if (step !== undefined) setVolume(media.volume + step);
    else if (keycode === 87) media.track += 1;
    else if (keycode === 88) media.track = Math.max(1, media.track - 1);
    else media.playing = keycode === 126 || (keycode === 85 && !media.playing);
  }

  function post(notification: PostedNotification): void {
    const { packageName, title, text } = notification;
    prepend(system.notifications, { package: packageName, title: title ?? '', text: text ?? '' });
    shell.emit('window_content_changed', shell.foreground());
    notifications.emit(notification);
  }

  return {
    system,
    receiveSms(number, text) {
      record(system, number, { from: 'them', text, at: clock.now() });
      post({ packageName: 'com.android.messaging', title: nameOf(system, number), text });
    },
    post,
    info: () => ({
      name,
      applicationId: COMPANION,
      batteryPercent: system.batteryPercent,
      screenOn: system.screenOn,
      foreground: shell.foreground(),
      accessibilityGranted: system.accessibility,
      screenCaptureGranted: true,
      overlayGranted: true,
      notificationListenerGranted: true,
      credentialLockDetected: system.credential,
    }),
    windows: async () => shell.windows().map(({ packageName, root }) => ({ packageName, root })),
    click: async (node) => touch.click(node),
    longClick: async (node) => touch.longClick(node),
    setText: async (node, text) => touch.setText(node, text),
    gesture: async (gesture) => touch.gesture(gesture),
    async global(action) {
      shell.press(action);
      return true;
    },
    async wake() {
      if (system.locked && system.credential) return 'locked';
      if (system.screenOn && !system.locked) return 'awake';
      shell.unlock();
      return 'woken';
    },

    apps: async () => [...shell.apps],
    launch: async (packageName) => shell.launch(packageName),
    resolve: async (intent) => shell.resolve(intent)?.package ?? null,
    async startActivity(intent) {
      append(system.intents, intent);
      return shell.start(intent);
    },
    async broadcast(intent) {
      append(system.broadcasts, intent);
    },
    async share(request) {
      if (request.package !== '' && !APPS.some((app) => app.package === request.package)) return 'activity_not_found';
      // Only a few, because each holds the bytes of its files.
      append(system.shares, request, 10);
      return 'opened';
    },

    readClipboard: async () => system.clipboard.text,
    async writeClipboard(text, label) {
      system.clipboard = { text, label };
    },
    mediaKey: async (keycode) => mediaKey(keycode),
    setVolume: async (level) => setVolume(level),
    async location() {
      requirePermission('ACCESS_FINE_LOCATION');
      return system.location;
    },
    async contacts(query, limit) {
      requirePermission('READ_CONTACTS');
      const wanted = query.trim().toLowerCase();
      return system.contacts.filter((one) => one.name.toLowerCase().includes(wanted)).slice(0, limit);
    },
    async call(number) {
      if (system.denied.has('android.permission.CALL_PHONE')) return 'dialer_opened';
      prepend(system.calls, { number, at: clock.now() });
      return 'auto_dial';
    },
    async sendSms(to, text) {
      requirePermission('SEND_SMS');
      if (system.carrier === 'silent') return new Promise(() => {});
      if (system.carrier === 'RESULT_OK') sendMessage(system, to, text);
      return system.carrier;
    },

    onEvent: events.on,
    onNotification: notifications.on,
    async notify(title, text) {
      prepend(system.notifications, { package: COMPANION, title, text });
    },
    screenshot() {
      const rects = shell
        .windows()
        .reverse()
        .flatMap(({ placed }) => [...placed.values()].map((one) => one.node.bounds));
      return encodePng(drawFrames(SCREEN, rects, 4));
    },
  };
}
