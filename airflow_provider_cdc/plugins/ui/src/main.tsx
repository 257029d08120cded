import { useEffect, useState } from "react";
import { useLocation, useNavigate } from "react-router-dom";

import { App } from "./App";
import { Loading } from "./bits";

let settled = false;

/**
 * Airflow's UI shows the first page through a lazy element, and from the next navigation on the component itself: for React that is another type of element. It
 * would throw the page away then, with the focus and what was just typed. So one navigation that leads nowhere comes before there is a page.
 */
function Pages() {
  const [ready, setReady] = useState(settled);
  const navigate = useNavigate();
  const location = useLocation();
  useEffect(() => {
    if (ready) {
      return;
    }
    settled = true;
    void navigate(location, { replace: true, state: location.state });
    const timer = window.setTimeout(() => setReady(true), 0); // if it is the same element still
    return () => window.clearTimeout(timer);
  }, []);
  return ready ? <App /> : <Loading />;
}

// Airflow's UI imports this file and takes the component from here.
Reflect.set(globalThis, "AirflowPlugin", Pages);
