// Frames while each page of a running server scrolls from its start to its end, at two widths. To be run by hand, from the
// folder that .ci/browser/run fills: node scroll.mjs URL TOKEN [PATH...]
import { launch, signedIn } from './world.mjs';

const STEP = 80;
const [url, operator, ...paths] = process.argv.slice(2);
if (!operator) throw new Error('say where and as whom: node scroll.mjs URL TOKEN [PATH...]');
const browser = await launch();
const page = await signedIn(browser, { url, tokens: { operator } });
for (const width of [1280, 375]) {
  await page.setViewportSize({ width, height: 800 });
  for (const path of paths.length ? paths : ['/', '/inbox', '/conversations', '/agents', '/graph', '/spend', '/limits', '/team']) {
    await page.goto(url + path, { waitUntil: 'load' });
    const seen = await page.evaluate((step) => new Promise((done) => {
      let slow = 0;
      new PerformanceObserver((list) => { slow += list.getEntries().length; }).observe({ type: 'longtask' });
      // What scrolls within the page scrolls, too.
      const panes = [document.documentElement, ...document.querySelectorAll('main *')]
        .filter((pane) => pane === document.documentElement || (pane.scrollHeight > pane.clientHeight + 8 && /auto|scroll/.test(getComputedStyle(pane).overflowY)));
      const height = Math.max(...panes.map((pane) => pane.scrollHeight));
      const gaps = [];
      let [last, y] = [performance.now(), 0];
      const frame = () => {
        const now = performance.now();
        gaps.push(now - last);
        [last, y] = [now, y + step];
        for (const pane of panes) pane.scrollTop = y;
        if (y < height || gaps.length < 60) return requestAnimationFrame(frame);
        gaps.sort((a, b) => a - b);
        const [half, most] = [gaps[gaps.length >> 1], gaps.at(-1)].map((gap) => gap.toFixed(1));
        return done(`${height} px, ${gaps.length} frames, p50 ${half} ms, longest ${most} ms, ${slow} long tasks`);
      };
      requestAnimationFrame(frame);
    }), STEP);
    console.log(String(width).padStart(5), path.padEnd(40), seen);
  }
}
await browser.close();
