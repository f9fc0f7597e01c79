/** Resources that the cases of a test file share. */
const started: (() => Promise<void>)[] = [];

/** Calls `stop` when the test file ends. `afterAll` of a module that several files share would be for the first of them. */
export const atFileEnd = (stop: () => Promise<void>): void => void started.push(stop);

export const endFile = async (): Promise<void> => {
  await Promise.all(started.splice(0).map((stop) => stop()));
};
