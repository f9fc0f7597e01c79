import { type Signal, signal } from '@preact/signals';
import { LANGUAGES, preferredLanguage } from '../shared/i18n.ts';

/** Settings of this browser by their keys (specification 2.1), with what they are before anybody changes them. */
export const DEFAULTS = {
  /** `auto`, `light` or `dark`. */
  theme: 'auto',
  /** A language of `shared/i18n.ts`; `auto` is the browser's. */
  language: 'auto',
  /** Whether what plain http means was acknowledged in this browser. */
  insecure_ack_seen: false,
  /** Why plain http is in order here: `lan_only`, `tailscale_vpn`, `local_dev`, or empty. */
  insecure_reason: '',
  /** One-time consent to pairing where every route is plain http, as the only one of a page over http is. */
  all_insecure_pair_ack_seen: false,
  /** Whether the inbox need not offer notifications any more. */
  knock_hint_seen: false,
  /** Last chosen lifetime of a session, 0 for no end. */
  pair_ttl_seconds: 2_592_000,
  /** Largest file to load, 5 to 100 MB. */
  max_inbound_mb: 25,
  /** Largest file that chats and messages load by themselves, 0 to 50 MB. */
  auto_fetch_mb: 2,
  /** How tool calls show in a chat: `off`, `compact` or `detailed`. */
  tool_display: 'detailed',
  /** Show the model's reasoning in a chat. */
  show_reasoning: true,
  /** Whether voice is a live conversation where the relay has a provider for one. */
  voice_live: false,
  /** Size of the terminal's text in pixels, 8 to 32. */
  terminal_font_size: 14,
  /** Whether the terminal keeps its text for screen readers. */
  terminal_screen_reader: false,
};

export type SettingValues = typeof DEFAULTS;

export interface Settings {
  readonly values: { readonly [Key in keyof SettingValues]: Signal<SettingValues[Key]> };
  set<Key extends keyof SettingValues>(key: Key, value: SettingValues[Key]): void;
  /** All of them, for a backup. */
  all(): Record<string, unknown>;
  /** Takes the values of a backup that fit; all others stay. */
  replace(stored: Readonly<Record<string, unknown>>): void;
}

const PLACE = 'svc settings';

/** Settings kept in this browser, readable before anything is drawn. */
export function openSettings(): Settings {
  const stored = read();
  const entries = Object.entries(DEFAULTS).map(([key, fallback]) => {
    const value = stored[key];
    return [key, signal(isValue(key, value) ? value : fallback)];
  });
  const values = Object.fromEntries(entries) as { [Key in keyof SettingValues]: Signal<SettingValues[Key]> };

  const all = () => Object.fromEntries(Object.entries(values).map(([name, { value }]) => [name, value]));

  function store(): void {
    try {
      localStorage.setItem(PLACE, JSON.stringify(all()));
    } catch {
      // A browser that keeps nothing still has the values until the page is closed.
    }
  }

  return {
    values,
    all,
    set(key, value) {
      values[key].value = value;
      store();
    },
    replace(stored) {
      for (const [name, own] of Object.entries<Signal<unknown>>(values)) {
        if (isValue(name, stored[name])) own.value = stored[name];
      }
      store();
    },
  };
}

function read(): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(PLACE) ?? '{}');
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Whether a stored value can be that setting. A language that the pages no longer speak cannot. */
function isValue(key: string, value: unknown): boolean {
  if (typeof value !== typeof DEFAULTS[key as keyof SettingValues]) return false;
  return key !== 'language' || value === 'auto' || Object.hasOwn(LANGUAGES, String(value));
}

/** The language that a setting means. */
export const languageOf = (setting: string): string => (setting === 'auto' ? preferredLanguage() : setting);

/** Applies a theme to the page. */
export function applyTheme(theme: string): void {
  const root = document.documentElement;
  if (theme === 'auto') delete root.dataset.theme;
  else root.dataset.theme = theme;
}
