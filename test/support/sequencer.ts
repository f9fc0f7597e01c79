import type { TestSpecification } from 'vitest/node';
import { BaseSequencer } from 'vitest/node';

/** The slowest files of the long suite. Begun late, one would run on beside an idle worker. */
const SLOWEST = ['e2e/build', 'api/terminal-leaks'];

/**
 * One project after the other, as files share a process only with the file of their project that follows. Within one, the
 * slowest first: as known here, else by vitest's own order of recorded duration or size.
 */
export class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = (name: string, names: readonly string[]) =>
      names.includes(name) ? names.indexOf(name) : names.length;
    const nameOf = (moduleId: string) => /\/test\/(.+?)(?:\.long)?\.test\.ts$/.exec(moduleId)?.[1] ?? '';
    return (await super.sort(files)).sort(
      (a, b) =>
        a.project.name.localeCompare(b.project.name) ||
        rank(nameOf(a.moduleId), SLOWEST) - rank(nameOf(b.moduleId), SLOWEST),
    );
  }
}
