import type { TestSpecification } from 'vitest/node';
import { BaseSequencer } from 'vitest/node';

/** The slowest files for their size. Begun late, one would run on beside an idle worker. */
const LONG = [
  'e2e/survive',
  'edge/sleep',
  'api/tui',
  'e2e/start',
  'api/terminal-leaks',
  'api/chat',
  'storage/survival',
  'e2e/build',
  'api/socket-attacks',
  'api/terminal',
  'api/phone',
  'e2e/companion-link',
  'api/device-control',
  'api/desktop-tools',
  'api/terminal-parked',
  'api/bridge',
  'e2e/profile-writes',
  'lib/profiles/profiles',
];

/** Slow files first, then vitest's own order by recorded duration or size. */
export class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const at = LONG.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
      return at < 0 ? LONG.length : at;
    };
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}
