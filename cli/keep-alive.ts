/** Waits for `work` with the process kept running: the timers of the system clock alone do not keep it. */
export async function keepAlive<T>(work: Promise<T>): Promise<T> {
  const timer = setInterval(() => {}, 1 << 30);
  try {
    return await work;
  } finally {
    clearInterval(timer);
  }
}
