import type { SafetySettings, SettingsChange } from '../../lib/companion/safety-settings.ts';
import type { Options } from '../options.ts';
import type { CommandContext } from '../output.ts';
import { lockSettings, openCompanion } from './settings.ts';

/**
 * Changes the settings of a companion that is not running, and returns them. `change` returns null to leave them as they
 * are, or throws.
 * @throws CommandError while a companion runs with them: it holds them in memory and would overwrite the change.
 */
export async function changeSettings(
  options: Options,
  context: CommandContext,
  change: (settings: SafetySettings) => SettingsChange | null,
): Promise<SafetySettings> {
  const companion = await openCompanion(options, context);
  const release = await lockSettings(companion);
  const { settings } = companion;
  try {
    const changed = change(settings.get());
    if (changed) await settings.update(changed);
    return settings.get();
  } finally {
    await release();
  }
}
