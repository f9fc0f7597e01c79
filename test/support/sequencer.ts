import type { TestSpecification } from 'vitest/node';
import { BaseSequencer } from 'vitest/node';

/** The slowest files for their size. Begun late, one would run on beside an idle worker. */
const LONG = [
  'e2e/survive',
  'api/terminal-leaks',
  'e2e/start',
  'api/tui',
  'e2e/profile-writes',
  'edge/sleep',
  'api/terminal',
  'e2e/companion-link',
  'e2e/phone-messages',
  'api/media-files',
  'api/device-control',
  'lib/profiles/profiles',
  'api/terminal-flow',
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
