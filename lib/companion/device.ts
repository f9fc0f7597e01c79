import type { PostedNotification } from './triggers.ts';

/** In screen pixels; `right` and `bottom` are exclusive. The object `B` of contract 03 §5. */
export interface Rect {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** A node of the accessibility tree at the time the windows were read. */
export interface UiNode {
  /** Opaque handle of the device, valid until the screen changes. */
  ref: string;
  className: string | null;
  /** Bullets for a password field, never the password. */
  text: string | null;
  contentDescription: string | null;
  hintText: string | null;
  viewId: string | null;
  /** The visible part; empty when nothing is visible. */
  bounds: Rect;
  clickable: boolean;
  longClickable: boolean;
  focusable: boolean;
  focused: boolean;
  editable: boolean;
  scrollable: boolean;
  checkable: boolean;
  checked: boolean;
  enabled: boolean;
  selected: boolean;
  password: boolean;
  children: UiNode[];
}

export interface UiWindow {
  packageName: string | null;
  root: UiNode;
}

/** Facts that are available synchronously. */
export interface DeviceInfo {
  name: string;
  /** The companion's own package, the target of `/return_to_hermes`. */
  applicationId: string;
  /** -1 when unknown. */
  batteryPercent: number;
  screenOn: boolean;
  /** Package in the foreground, null when unknown. */
  foreground: string | null;
  accessibilityGranted: boolean;
  screenCaptureGranted: boolean;
  overlayGranted: boolean;
  notificationListenerGranted: boolean;
  credentialLockDetected: boolean;
}

export interface Gesture {
  from: { x: number; y: number };
  /** Equal to `from` for a tap or a long press. */
  to: { x: number; y: number };
  durationMs: number;
}

export type GlobalAction =
  | 'home'
  | 'back'
  | 'recents'
  | 'notifications'
  | 'quick_settings'
  | 'power_dialog'
  | 'lock_screen';

export interface Intent {
  action: string;
  data: string;
  package: string;
  /** `package/class`, or ''. */
  component: string;
  category: string;
  extras: Record<string, string>;
}

export interface AppInfo {
  package: string;
  label: string;
}

export interface Fix {
  latitude: number;
  longitude: number;
  /** Metres. */
  accuracy: number;
  provider: string;
  /** Epoch ms. */
  timestamp: number;
  altitude?: number;
}

export interface ContactPhone {
  number: string;
  type: string;
  label: string;
}

export interface Contact {
  id: string;
  name: string;
  phones: ContactPhone[];
}

/** `RESULT_OK`, or `RESULT_ERROR_…` from the carrier. A silent carrier is a promise that never settles. */
export type SmsResult = 'RESULT_OK' | `RESULT_ERROR_${string}`;

/** Text and files for the share sheet, or for a message when `to` is given. */
export interface ShareRequest {
  text: string;
  title: string;
  package: string;
  to?: string;
  files: { name: string; type: string; bytes: Uint8Array }[];
}

export type ShareResult = 'opened' | 'activity_not_found' | 'uri_permission_denied' | 'android_exception';

export type UiEventType = 'click' | 'text_changed' | 'window_content_changed' | 'window_state_changed' | 'scroll';

export interface UiEvent {
  type: UiEventType;
  packageName: string | null;
  className: string | null;
  text: string[];
  contentDescription: string | null;
  password: boolean;
}

/**
 * The hardware and operating system behind the companion. Actions resolve to false if the system declines, and reject
 * with a `DeviceFailure` if a permission or service is missing.
 */
export interface Device {
  info(): DeviceInfo;
  /** All windows, topmost first. */
  windows(): Promise<UiWindow[]>;
  click(node: UiNode): Promise<boolean>;
  longClick(node: UiNode): Promise<boolean>;
  /** Replaces the content of an editable node. */
  setText(node: UiNode, text: string): Promise<boolean>;
  gesture(gesture: Gesture): Promise<boolean>;
  global(action: GlobalAction): Promise<boolean>;
  /**
   * Turns the screen on and dismisses the keyguard: `woken` if that changed anything, `locked` if it needs a
   * credential.
   */
  wake(): Promise<'awake' | 'woken' | 'locked'>;

  /** Launchable activities; a package may appear more than once. */
  apps(): Promise<AppInfo[]>;
  /** False if the package has no launch intent. */
  launch(packageName: string): Promise<boolean>;
  /** The package that an intent resolves to, or null if no activity accepts it. */
  resolve(intent: Intent): Promise<string | null>;
  startActivity(intent: Intent): Promise<boolean>;
  broadcast(intent: Intent): Promise<void>;
  share(request: ShareRequest): Promise<ShareResult>;

  readClipboard(): Promise<string>;
  writeClipboard(text: string, label: string): Promise<void>;
  /** Presses a media or volume key, given as an Android key code. */
  mediaKey(keycode: number): Promise<void>;
  /** 0..100. */
  setVolume(level: number): Promise<void>;
  location(): Promise<Fix | null>;
  /** Contacts whose name matches, at most `limit`. */
  contacts(query: string, limit: number): Promise<Contact[]>;
  call(number: string): Promise<'auto_dial' | 'dialer_opened'>;
  sendSms(to: string, text: string): Promise<SmsResult>;

  /** Subscribes to accessibility events. Returns the unsubscribe function. */
  onEvent(listener: (event: UiEvent) => void): () => void;
  /** Shows a notification from the companion. */
  notify(title: string, text: string): Promise<void>;
  /** Subscribes to notifications of all apps. Returns the unsubscribe function; absent without that permission. */
  onNotification?(listener: (notification: PostedNotification) => void): () => void;
  /** A PNG of the screen; absent when the device cannot capture it. */
  screenshot?(): Promise<Uint8Array>;
}

/** A failure that callers see with an error code (contract 03 §8.7). */
export class DeviceFailure extends Error {
  readonly code: 'permission_denied' | 'service_unavailable';
  /** The missing Android permission. */
  readonly permission?: string;

  constructor(code: DeviceFailure['code'], message: string, permission?: string) {
    super(message);
    this.name = 'DeviceFailure';
    this.code = code;
    this.permission = permission;
  }
}
