import type { Device } from '../device.ts';
import type { Question } from '../types.ts';
import type { CommandCall } from './gate.ts';

interface Effect {
  /** The effect of the command, if it is allowed. */
  effect: string;
  /** The app that it acts on, if not the foreground app. */
  app?: string;
}

const EFFECTS: Record<string, Effect> = {
  '/tap': { effect: 'taps it' },
  '/tap_text': { effect: 'taps it' },
  '/long_press': { effect: 'presses it long' },
  '/type': { effect: 'types it into the focused field' },
  '/call': { effect: 'calls this number', app: 'Phone' },
  '/send_sms': { effect: 'sends this message', app: 'Messages' },
  '/send_mms': { effect: 'opens this message, ready to be sent', app: 'Messages' },
  '/share_media': { effect: 'opens the share sheet with this', app: 'Share sheet' },
};

/** The command behind a question, the app that it would act on, and its effect there. */
export async function subjectOf({ command, route, env }: CommandCall): Promise<NonNullable<Question['subject']>> {
  const { effect, app } = EFFECTS[route.path] ?? { effect: 'runs the command' };
  const { foreground } = env.device.info();
  const shown = app ?? (foreground === null ? 'unknown' : await appName(env.device, foreground));
  return { command: `${command.method} ${route.path}`, app: shown, effect };
}

/** `Tea shop (org.example.shop)`; the package alone for an app that is not in the launcher. */
export async function appName(device: Device, packageName: string): Promise<string> {
  const apps = await device.apps().catch(() => []);
  const label = apps.find((one) => one.package === packageName)?.label;
  return label === undefined ? packageName : `${label} (${packageName})`;
}
